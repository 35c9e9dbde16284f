"""`hybridml.data` where PyTorch's programs look for it."""

from ..data import *  # noqa: F403
from ..data import __all__ as __all__
