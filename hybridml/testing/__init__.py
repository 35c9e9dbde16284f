"""Helpers for tests of programs: gradients against differences, counts of kernels and traces, every name traced."""

from __future__ import annotations

from typing import Any

from ..core.spellings import advise
from .gradients import gradcheck
from .operations import Sample, check_op
from .programs import assert_kernels, assert_retraces


def traced_namespace() -> Any:
    """The public namespace with every function, method and operator run through `@trace`, as a module.

    Its arrays are wrappers with the interface of the array API standard; `array.tensor` is the tensor.

    >>> import hybridml.testing
    >>> xp = hybridml.testing.traced_namespace()
    >>> (xp.asarray([1.0, 2.0]) + 1).tensor.tolist()
    [2.0, 3.0]
    """
    from . import traced

    return traced


__all__ = ["Sample", "assert_kernels", "assert_retraces", "check_op", "gradcheck", "traced_namespace"]

advise(globals())
