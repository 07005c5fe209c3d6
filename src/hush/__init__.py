"""hush: deep networks whose neurons stay quiet, and train anyway."""

from hush.theory.design import Design, design

__version__ = "0.1.0"

__all__ = ["Design", "__version__", "design"]
