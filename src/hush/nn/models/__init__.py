"""Ready-made networks: the paper's chains, and the residual networks people use, small and plain."""

from hush.nn.models.chains import cnn, mlp
from hush.nn.models.pieces import ActivationSource, BranchScale
from hush.nn.models.residual_mlps import ResidualMLP, residual_mlp
from hush.nn.models.resnets import ResNet, resnet
from hush.nn.models.roles import draw_by_role_
from hush.nn.models.transformers import GPT, gpt

__all__ = [
    "GPT",
    "ActivationSource",
    "BranchScale",
    "ResNet",
    "ResidualMLP",
    "cnn",
    "draw_by_role_",
    "gpt",
    "mlp",
    "residual_mlp",
    "resnet",
]
