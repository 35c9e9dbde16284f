"""PyTorch's place of `hybridml.data`: `from hybridml.utils.data import DataLoader`."""

from .. import data

__all__ = ["data"]
