"""Other libraries: NumPy's protocols and methods, einops, and the names that libraries look for."""

from . import lookup, numpy
from .numpy import methods

__all__ = ["lookup", "methods", "numpy"]
