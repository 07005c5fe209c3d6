"""Measure a real model layer by layer and set it beside the theory; the package is its own verb.

hush.diagnose(model, inputs)              a Diagnosis
hush.diagnose.Monitor(model, every=50)    the same figures during training
hush.sparsity(model, loader)              the share of exact zeros over a data set
"""

import sys

from hush.diagnose.diagnosis import Diagnosis, Layer
from hush.diagnose.monitor import Monitor, Snapshot
from hush.diagnose.verb import Verb
from hush.diagnose.zeros import Sparsity, sparsity

__all__ = ["Diagnosis", "Layer", "Monitor", "Snapshot", "Sparsity", "sparsity"]

# `hush.diagnose` names both the package and what one does with it. A function could not stay at that name: importing
# any submodule puts the package back in its place. So the package is callable.
sys.modules[__name__].__class__ = Verb
