"""Tools for modules and their parameters, with PyTorch's names.

computed.py          attributes of modules that are computed where they are read
parametrize.py       weights that are functions of other tensors
parametrizations.py  weights of given norm, of spectral norm 1, orthogonal ones
normalized.py        the first two with their tensors in the layer itself
replaced.py          other tensors in the places of a module's own, for a block
prune.py             weights of which some elements are masked out
gradients.py         clipping, flat vectors of parameters
fusion.py            normalisation folded into the weights before it
creation.py          modules without initial values
rnn.py               sequences of several lengths, padded or packed
"""

from ...core.spellings import advise
from . import parametrizations, parametrize, prune, rnn
from .creation import skip_init
from .fusion import fuse_conv_bn_eval, fuse_conv_bn_weights, fuse_linear_bn_eval, fuse_linear_bn_weights
from .gradients import (
    clip_grad_norm_,
    clip_grad_value_,
    clip_grads_with_norm_,
    get_total_norm,
    parameters_to_vector,
    vector_to_parameters,
)
from .normalized import remove_spectral_norm, remove_weight_norm, spectral_norm, weight_norm

__all__ = [
    "clip_grad_norm_",
    "clip_grad_value_",
    "clip_grads_with_norm_",
    "fuse_conv_bn_eval",
    "fuse_conv_bn_weights",
    "fuse_linear_bn_eval",
    "fuse_linear_bn_weights",
    "get_total_norm",
    "parameters_to_vector",
    "parametrizations",
    "parametrize",
    "prune",
    "remove_spectral_norm",
    "remove_weight_norm",
    "rnn",
    "skip_init",
    "spectral_norm",
    "vector_to_parameters",
    "weight_norm",
]

advise(globals())
