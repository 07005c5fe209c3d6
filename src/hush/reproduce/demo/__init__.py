"""hush in three minutes on the embedded digits: 95 % zeros that are held beside a dense twin, and what explodes."""

from hush.reproduce.demo.claims import Claim, claims_of
from hush.reproduce.demo.network_rows import NetworkRow, row_of
from hush.reproduce.demo.networks import DemoNetworks, demo_networks
from hush.reproduce.demo.step_times import StepTime, time_steps
from hush.reproduce.demo.story import Demo, run_demo
from hush.reproduce.demo.training_figure import draw_training

__all__ = [
    "Claim",
    "Demo",
    "DemoNetworks",
    "NetworkRow",
    "StepTime",
    "claims_of",
    "demo_networks",
    "draw_training",
    "row_of",
    "run_demo",
    "time_steps",
]
