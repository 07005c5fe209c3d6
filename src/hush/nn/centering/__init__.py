"""Centred gradients: weights learn from what differs between inputs, biases from what is common to all of them."""

from hush.nn.centering.handle import Centering, center_gradients

__all__ = ["Centering", "center_gradients"]
