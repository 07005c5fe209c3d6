"""Training with Lightning."""

from hush.train.sparsity_monitor import SparsityMonitor

__all__ = ["SparsityMonitor"]
