"""Other libraries: NumPy's protocols and methods, PyTorch's names, einops, and the names that libraries look for.

lookup.py           libraries that look for what they work on by name
einops.py           what einops needs to know of tensors
method_examples.py  examples in the docstrings of the methods of tensors
numpy/              NumPy's functions on tensors
pytorch/            PyTorch's names and manners
"""

from . import lookup, numpy
from .numpy import methods  # before those of PyTorch, which replace some

from . import pytorch  # isort: skip

__all__ = ["lookup", "methods", "numpy", "pytorch"]
