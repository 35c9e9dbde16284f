"""PyTorch's names and manners, for programs that change their import alone.

functions.py  functions and constants of the namespace under PyTorch's, JAX's and NumPy's names
hardware.py   `cuda`, `accelerator` and `backends`, as scripts ask them what there is
hints.py      what to write instead of names that are not there
manners.py    functions whose result is PyTorch's when they are called by `dim=`: values with their indices
methods.py    methods of tensors
"""

from . import functions, hardware, hints, manners, methods

__all__ = ["functions", "hardware", "hints", "manners", "methods"]
