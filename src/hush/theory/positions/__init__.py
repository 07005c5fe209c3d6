"""Networks over positions, tokens or pixels, as lists of steps: convolutions, pooling, attention, residual streams."""

from hush.theory.positions.attention import Attention
from hush.theory.positions.branch import Branch
from hush.theory.positions.convolution import Convolution, Dense
from hush.theory.positions.elementwise import Activate
from hush.theory.positions.embedding import Embedding
from hush.theory.positions.field import Field
from hush.theory.positions.gate import Gate
from hush.theory.positions.head import Head
from hush.theory.positions.normalise import Normalise
from hush.theory.positions.pooling import AveragePooling, GlobalAverage, MaxPooling
from hush.theory.positions.softmax_rows import participation
from hush.theory.positions.stack import Stack
from hush.theory.positions.step import Preactivation, Step, StepPrediction, run_steps
from hush.theory.positions.transformer import TransformerLayer, feed_forward, gated_feed_forward

__all__ = [
    "Activate",
    "Attention",
    "AveragePooling",
    "Branch",
    "Convolution",
    "Dense",
    "Embedding",
    "Field",
    "Gate",
    "GlobalAverage",
    "Head",
    "MaxPooling",
    "Normalise",
    "Preactivation",
    "Stack",
    "Step",
    "StepPrediction",
    "TransformerLayer",
    "feed_forward",
    "gated_feed_forward",
    "participation",
    "run_steps",
]
