"""Sparsify what exists: thresholds for the activations of a trained model, from what they give out."""

from hush.nn.sparsifying.sparsifier import sparsify
from hush.nn.sparsifying.sparsify_report import OutputChange, SparsifiedLayer, SparsifyReport

__all__ = ["OutputChange", "SparsifiedLayer", "SparsifyReport", "sparsify"]
