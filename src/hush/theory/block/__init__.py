"""Blocks: what a deep network repeats, as an object that the rest of the theory asks: the plain chain, and branches on
a residual stream."""

from hush.theory.block.branch_scale import BRANCH_SCALES, resolve_branch_scale
from hush.theory.block.chain import Chain
from hush.theory.block.feedforward import FeedForward
from hush.theory.block.protocol import Block, LayerNoise
from hush.theory.block.residual import Residual

__all__ = ["BRANCH_SCALES", "Block", "Chain", "FeedForward", "LayerNoise", "Residual", "resolve_branch_scale"]
