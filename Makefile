# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

.PHONY: help demo test test-ray check sanitize clean
.DEFAULT_GOAL := help

help:
	@echo "make demo    set up and run the example"
	@echo "make test    set up and run the tests"
	@echo "make test-ray  install Ray too and run the tests of sweeps on a cluster"
	@echo "make check   lint and types"
	@echo "make sanitize  run the kernel tests under AddressSanitizer and UBSan"
	@echo "make clean   remove what the others made"

# torch comes first and pinned: asked for by another package it would bring its GPU build.
$(READY): pyproject.toml constraints.txt $(wildcard native/*.* native/simd/*)
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --constraint constraints.txt torch
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev,train]'
	@touch $@

demo: $(READY)
	$(BIN)/hush demo

test: $(READY)
	$(BIN)/python -m pytest -n 2

# Ray is large: it comes only where it is asked for.
test-ray: $(READY)
	$(BIN)/pip install --quiet --constraint constraints.txt ray
	$(BIN)/python -m pytest tests/reproduce/test_cluster.py

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

sanitize: $(READY)
	$(MAKE) -C native sanitize

clean:
	rm -rf .venv build* .mypy_cache .pytest_cache .ruff_cache .hypothesis
