"""Measure a real model layer by layer and set it beside the theory; the package itself is what one calls.

hush.diagnose(model, inputs)              a Diagnosis
hush.diagnose.Monitor(model, every=50)    the same figures during training
hush.sparsity(model, loader)              the share of exact zeros over a data set
"""

import sys

from hush.diagnose.callable_package import CallablePackage
from hush.diagnose.comparison import diagnose_model
from hush.diagnose.diagnosis import Diagnosis, Layer, StreamPoint
from hush.diagnose.monitor import Monitor, Snapshot
from hush.diagnose.share_of_zeros import Sparsity, sparsity

__all__ = ["Diagnosis", "Layer", "Monitor", "Snapshot", "Sparsity", "StreamPoint", "diagnose_model", "sparsity"]

# `hush.diagnose` names both the package and what one does with it. A function could not stay at that name: importing
# any submodule puts the package back in its place. So the package is callable, and calls `diagnose_model`.
sys.modules[__name__].__class__ = CallablePackage
