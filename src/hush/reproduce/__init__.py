"""The paper: its tables as data, and how hush's predictions and runs compare with them."""

from hush.reproduce.paper import TABLES, Outcome, PaperRow, load_table

__all__ = ["TABLES", "Outcome", "PaperRow", "load_table"]
