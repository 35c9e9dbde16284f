"""Tools for modules and their parameters, with PyTorch's names.

gradients.py  clipping, flat vectors of parameters
fusion.py     normalisation folded into the weights before it
rnn.py        sequences of several lengths, padded or packed
"""

from ...core.spellings import advise
from ..reparametrized import remove_spectral_norm, remove_weight_norm, spectral_norm, weight_norm
from . import rnn
from .fusion import fuse_conv_bn_eval, fuse_linear_bn_eval
from .gradients import clip_grad_norm_, clip_grad_value_, parameters_to_vector, vector_to_parameters

__all__ = [
    "clip_grad_norm_",
    "clip_grad_value_",
    "fuse_conv_bn_eval",
    "fuse_linear_bn_eval",
    "parameters_to_vector",
    "remove_spectral_norm",
    "remove_weight_norm",
    "rnn",
    "spectral_norm",
    "vector_to_parameters",
    "weight_norm",
]

advise(globals())
