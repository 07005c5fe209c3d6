"""Tables as configs: which rows, which seeds, in which order."""

import pytest

from hush.reproduce import load_table
from hush.reproduce.experiments import experiment, parse_fields, select_rows


def test_rows_become_configs_seed_by_seed() -> None:
    made = experiment("table-shallow-clipped", "quick", rows="8,19", seeds=3)
    configs = made.configs
    assert [(c.activation, c.sparsity, c.v_prime, c.seed) for c in configs] == [
        ("crelu", 0.85, 0.7, 0),
        ("cst", 0.85, 0.5, 0),
        ("crelu", 0.85, 0.7, 1),
        ("cst", 0.85, 0.5, 1),
        ("crelu", 0.85, 0.7, 2),
        ("cst", 0.85, 0.5, 2),
    ]
    assert {(c.data, c.depth, c.width) for c in configs} == {("mnist", 30, 300)}
    assert len({c.name for c in configs}) == 6
    assert len(made.rows) == 24


def test_unclipped_rows_have_no_slope() -> None:
    configs = experiment("table-shallow-unclipped", "paper", given={"depth": 2}).configs
    assert {(c.v_prime, c.clip) for c in configs} == {(None, None)}
    assert len(configs) == 8 * 5


def test_the_parts_of_table_1() -> None:
    dnn, cnn = (experiment("table1", "paper", part=part, rows="1,8") for part in ("dnn", "cnn"))
    assert (len(dnn.configs), len(cnn.configs)) == (2 * 5, 2)
    assert {c.arch for c in cnn.configs} == {"cnn"}
    quick = experiment("table1", "quick", part="cnn", given={"depth": 2})
    assert {c.v_prime for c in quick.configs} == {None, 0.5, 0.7, 0.9}
    assert len(quick.configs) == 33
    with pytest.raises(ValueError, match="table-shallow-clipped has no part 'cnn'; it has dnn"):
        experiment("table-shallow-clipped", part="cnn")
    with pytest.raises(ValueError, match="unknown table 'table2'"):
        experiment("table2")


def test_the_smoke_preset_runs_one_row_of_each_activation() -> None:
    rows = [row for row in experiment("table1", "smoke").rows if row.configs]
    assert [row.name for row in rows] == ["shifted_relu-0.7", "soft_threshold-0.7", "crelu-0.85-0.7", "cst-0.85-0.7"]


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("1-3,8", {1, 2, 3, 8}),
        ("crelu-0.85-0.7", {17}),
        ("crelu-0.8", {13, 14, 15}),  # and not those of 0.85
        ("soft_threshold, 33", {4, 5, 6, 33}),
    ],
)
def test_rows_by_number_and_by_name(text: str, numbers: set[int]) -> None:
    assert select_rows(text, load_table("table1")) == numbers


@pytest.mark.parametrize("text", ["34", "0", "5-3", "crelu-0.95", " , ", "1-x"])
def test_rows_that_are_not_there(text: str) -> None:
    with pytest.raises(ValueError, match="row"):
        select_rows(text, load_table("table1"))


def test_fields_by_hand() -> None:
    assert parse_fields(["lr=1e-3", "epochs=7", "give_up=none", "schedule=cosine", "per_image=true"]) == {
        "lr": 1e-3,
        "epochs": 7,
        "give_up": None,
        "schedule": "cosine",
        "per_image": True,
    }
    for wrong in ("epochs=many", "per_image=perhaps"):
        with pytest.raises(ValueError, match="cannot be"):
            parse_fields([wrong])
    for wrong in ("seed=3", "sparsity=0.5", "lr", "nothing=1"):
        with pytest.raises(ValueError, match="sets nothing" if wrong != "lr" else "cannot be ''"):
            parse_fields([wrong])
