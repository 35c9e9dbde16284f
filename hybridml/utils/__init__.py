"""PyTorch's place of `hybridml.data` and `hybridml.checkpoint`: `from hybridml.utils.data import DataLoader`."""

from .. import data
from . import checkpoint

__all__ = ["checkpoint", "data"]
