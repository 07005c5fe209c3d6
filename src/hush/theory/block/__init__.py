"""Blocks: what a deep network repeats, as an object that the rest of the theory asks. The first is the plain chain."""

from hush.theory.block.chain import Chain
from hush.theory.block.protocol import Block, LayerNoise

__all__ = ["Block", "Chain", "LayerNoise"]
