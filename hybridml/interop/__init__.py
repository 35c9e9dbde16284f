"""Other libraries: NumPy's protocols and methods, einops, and the names that libraries look for.

lookup.py  libraries that look for what they work on by name
einops.py  what einops needs to know of tensors
numpy/     NumPy's functions on tensors
"""

from . import lookup, numpy
from .numpy import methods

__all__ = ["lookup", "methods", "numpy"]
