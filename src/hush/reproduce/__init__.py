"""The paper: its tables as data, and how hush's predictions and runs compare with them."""

from hush.reproduce.experiments import Experiment, experiment
from hush.reproduce.paper import TABLES, Outcome, PaperRow, load_table
from hush.reproduce.results import ResultTable, read_results
from hush.reproduce.sweep import Cluster, Swept, run_sweep
from hush.reproduce.train_and_read import reproduce_table

__all__ = [
    "TABLES",
    "Cluster",
    "Experiment",
    "Outcome",
    "PaperRow",
    "ResultTable",
    "Swept",
    "experiment",
    "load_table",
    "read_results",
    "reproduce_table",
    "run_sweep",
]
