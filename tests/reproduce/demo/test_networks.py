from dataclasses import replace

from hush.reproduce.demo import demo_networks


def test_the_twins_differ_in_nothing_but_what_is_shown() -> None:
    networks = demo_networks()
    assert networks.drifting == replace(networks.held, hold=False)
    as_dense = {
        "hold": False,
        "activation": "relu",
        "sparsity": None,
        "engine": "dense",
    }  # only zeros gain by the engine
    assert replace(networks.held, **as_dense) == networks.dense
    assert networks.held.sparsity == networks.drifting.sparsity == networks.exploding.sparsity == 0.95
    for _, config in networks.items():
        assert (config.data, config.depth, config.width) == ("digits", 30, 300)


def test_the_verdicts_beforehand() -> None:
    networks = demo_networks()
    said = [config.design().verdict for _, config in networks.items()]
    assert [verdict.endswith("it should train.") for verdict in said] == [True, True, True, False]
    assert "it will not train" in said[-1]


def test_the_chain_is_not_broken_by_its_recipe() -> None:
    """It comes apart at the very rate at which hush trains chains of this depth, warm-up included."""
    exploding = demo_networks().exploding
    trained = replace(exploding, activation="crelu")
    for name in ("optimizer", "lr", "schedule", "warmup", "batch", "epochs"):
        assert getattr(exploding, name) == getattr(trained, name)
    assert exploding.warmup > 0
