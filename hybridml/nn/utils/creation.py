"""Modules made without initial values, for those whose values come from elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from ...core.device_tensor import on_device
from ..module import Module

M = TypeVar("M", bound=Module)


def skip_init(module_cls: Callable[..., M], *args: Any, device: Any = "cpu", **kwargs: Any) -> M:
    """A module of a class, with these arguments, whose parameters and buffers may have any values: none are drawn.

    For those that `load_state_dict` or initializers fill.

    >>> skip_init(hm.nn.Linear, 5, 1).weight.shape
    (1, 5)
    """
    return on_device("meta", lambda: module_cls(*args, **kwargs)).to_empty(device=device)
