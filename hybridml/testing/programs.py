"""Assertions about what a traced function was compiled to: they keep a program as fused and as stable as it is."""

from __future__ import annotations

from hybridml.tracing.function import TracedFunction


def assert_kernels(fn: TracedFunction, most: int) -> None:
    """Raises AssertionError if the program of the last call launches more than `most` kernels.

    >>> import hybridml as hm
    >>> from hybridml.testing import assert_kernels
    >>> f = hm.trace(lambda x: hm.exp(x) * 2 + 1)
    >>> y = f(hm.ones((8,)))
    >>> assert_kernels(f, 1)
    """
    found = fn.stats.kernels
    if found > most:
        raise AssertionError(
            f"{fn.__qualname__} runs {found} kernels, {most} at most were expected; print(fn.ir) shows them"
        )


def assert_retraces(fn: TracedFunction, most: int = 0) -> None:
    """Raises AssertionError if calls after the first were traced more than `most` times, with the reasons.

    >>> import hybridml as hm
    >>> from hybridml.testing import assert_retraces
    >>> f = hm.trace(lambda x, rate: x * rate)
    >>> y = f(hm.ones((8,)), 0.1), f(hm.ones((8,)), 0.2)
    >>> assert_retraces(f)
    """
    found = fn.retraces
    if len(found) > most:
        reasons = "\n".join(f"  {reason}" for reason in found)
        raise AssertionError(f"{len(found)} calls were traced again, {most} at most were expected:\n{reasons}")
