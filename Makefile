# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

.PHONY: help demo test test-browser test-models test-ray docs check sanitize clean
.DEFAULT_GOAL := help

help:
	@echo "make demo    set up and run the example"
	@echo "make test    set up and run the tests"
	@echo "make test-browser  run the explorer in a real browser"
	@echo "make docs    build the documentation into site/"
	@echo "make test-models  install timm and transformers too and run the tests with their models"
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

# Chromium comes from the system's packages: a test tool's own download is not to be had everywhere.
test-browser: $(READY)
	$(BIN)/pip install --quiet --constraint constraints.txt streamlit threadpoolctl playwright
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || { \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    apt-get update -qq && apt-get install --yes -qq --no-install-recommends chromium fonts-dejavu-core >/dev/null; \
	  fi; } || echo "Chromium could not be installed."
	$(BIN)/python -m pytest tests/app

docs: $(READY)
	$(BIN)/pip install --quiet --constraint constraints.txt mkdocs mkdocs-material 'mkdocstrings[python]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

# Ray is large: it comes only where it is asked for.
test-ray: $(READY)
	$(BIN)/pip install --quiet --constraint constraints.txt ray
	$(BIN)/python -m pytest tests/reproduce/test_cluster.py

# timm asks for torchvision. It comes alone, since its dependencies would replace torch's CPU build by another; what of
# it is compiled then does not load (tests/models/torchvision_operators.py says why nothing here needs it) and would break
# whatever else imports it, Lightning too. So both go into a folder of their own, in sight of these tests only.
test-models: $(READY)
	$(BIN)/pip install --quiet --constraint constraints.txt transformers onnx onnxruntime onnxscript
	$(BIN)/pip install --quiet --constraint constraints.txt --no-deps --upgrade --target .venv/models torchvision timm
	PYTHONPATH=.venv/models $(BIN)/python -m pytest tests/models tests/nn/test_export.py tests/test_docs.py

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

sanitize: $(READY)
	$(BIN)/pip install --quiet --constraint constraints.txt nanobind
	$(MAKE) -C native sanitize

clean:
	rm -rf .venv build* .mypy_cache .pytest_cache .ruff_cache .hypothesis
