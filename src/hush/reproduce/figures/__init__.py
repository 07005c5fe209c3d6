"""The paper's figures, numbered and captioned as there, and three more; each a function that returns a Figure."""

from hush.reproduce.figures.catalogue import FIGURES, Entry, draw, find
from hush.reproduce.figures.save import FORMATS, save

__all__ = ["FIGURES", "FORMATS", "Entry", "draw", "find", "save"]
