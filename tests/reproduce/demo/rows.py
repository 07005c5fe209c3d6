"""Rows and step times as a demo measures them, made by hand."""

from typing import Any

from hush.reproduce.demo import NetworkRow, StepTime

_TRAINED = {"predicted": "it should train.", "predicted_trains": True, "diagnosed": "It should train.", "layers": 30}
_TRAINED |= {"went_as_predicted": (True, True), "outcomes": ("trained", "trained"), "came_apart": (False, False)}
_TRAINED |= {"gradient_growth": (0.3, 0.4), "seconds": 10.0}


def row(name: str, **values: Any) -> NetworkRow:
    """A network that trained as predicted, but for `values`."""
    return NetworkRow(**{"name": name, **_TRAINED, **values})


def good_rows() -> dict[str, NetworkRow]:
    """Four networks of which every claim holds."""
    return {
        "dense": row("ReLU", test_accuracies=(0.98, 0.99), zeros=(0.5, 0.6), layer_zeros=((0.4, 0.6), (0.5, 0.7))),
        "held": row(
            "CReLU, held",
            test_accuracies=(0.99, 0.98),
            zeros=(0.95, 0.95),
            layer_zeros=((0.948, 0.952), (0.949, 0.951)),
        ),
        "drifting": row(
            "CReLU, fixed", test_accuracies=(0.98, 0.98), zeros=(0.93, 0.92), layer_zeros=((0.91, 0.94), (0.90, 0.94))
        ),
        "exploding": row(
            "shifted ReLU, chain",
            predicted_trains=False,
            outcomes=("diverged: the loss is nan at step 1, layer 6; test accuracy 0.1",) * 2,
            came_apart=(True, True),
            gradient_growth=(10.1, float("nan")),
            test_accuracies=(0.1, 0.1),
            zeros=(0.1, 0.2),
            layer_zeros=((0.0, 0.9), (0.0, 0.9)),
        ),
    }


def good_steps(accelerated_ms: float = 10.0) -> tuple[StepTime, ...]:
    """ReLU at 20 ms, the held network at `accelerated_ms` on the engine, and the chain."""
    return (
        StepTime("ReLU", False, 20.0, 0, 62),
        StepTime("CReLU, held", False, 22.0, 0, 62),
        StepTime("CReLU, held", True, accelerated_ms, 60, 62),
        StepTime("CReLU, chain", False, 16.0, 0, 31),
        StepTime("CReLU, chain", True, 4.0, 30, 31),
    )
