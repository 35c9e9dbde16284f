"""Hooks: functions of higher modules that lower ones call, each set once by the module that it names.

Eager transcendentals and random bits run the code that compiled programs run, so that both styles give the same bits;
the rows of ops/ know neither loops nor a compiler.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .record import record


@record(frozen=False)
class Hooks:
    # (name, *arrays of one float dtype) -> array of the broadcast shape. __init__.py: the polynomials that compiled
    # code runs, compiled at the first use, or through NumPy where there is no compiler. Or arrays of one complex dtype,
    # and an instruction that compiled code makes of several.
    transcendental: Callable[..., np.ndarray]
    # (state, shape) -> uint32 words. __init__.py, the same way.
    random_bits: Callable[[np.ndarray, tuple[int, ...]], np.ndarray]
    # __init__.py: targets/cpu/eager/products.py.
    matmul: Callable[[np.ndarray, np.ndarray], np.ndarray]
    # (array, transforms of ops/fourier.py) -> what kernels of traced programs make of it, or None where there are none.
    # __init__.py: targets/cpu/eager/fourier.py.
    fourier: Callable[..., np.ndarray | None]
    # An array -> a copy. eager/large.py.
    materialized: Callable[[np.ndarray], np.ndarray]
    # An array -> itself, or a copy in row-major order. eager/large.py.
    contiguous: Callable[[np.ndarray], np.ndarray]
    # Text of a graph -> shapes and dtypes of its inputs and outputs, and the function that computes it. pipeline.py,
    # for runtime/host_callback.py.
    read_graph: Callable[[str], Any]
    # A size (sizes/dims.py) in arithmetic of Python floats: a float, which the program then is for. The front end's
    # tracer makes it a number of the trace.
    size_as_float: Callable[[Any], Any]
    # (a number of Python's, a size) -> the power. The front end's tracer makes it a number of the trace, too.
    power: Callable[[Any, Any], Any]
    # A size -> the same where steps of loops are at the end at which it is least, or None; ("==" or "<", two sizes) or
    # ("number" or "divisor", a size): what is not decided by their form. sizes/steps.py.
    without_steps: Callable[[Any], Any]
    undecided: Callable[[str, Any, Any], bool]
    # A comparison of sizes by a user's line (sizes/steps.py: Undecided) whose answer is another one in other steps of a
    # loop -> the answer to go on with, or None. rolling/capture.py of the front end.
    question_of_steps: Callable[[Any], bool | None]
    # (name of a row, arrays, sizes of ops/routines.py, shapes and dtypes of its results) -> its results, or None where
    # they are NumPy's to compute. __init__.py: targets/cpu/eager/routines.py.
    routine: Callable[..., Sequence[np.ndarray] | None]
    # By the parameter that names what a row with effects (ops/effects.py) is about: (name of the row, that name,
    # arrays, other parameters) -> its results. hybridml/distributed/meanings.py, hybridml/data/stored.py.
    effects: dict[str, Callable[..., Any]]
    # Each forgets what a program has called that has failed: the next call is another. The same files.
    forgetting: list[Callable[[], None]]

    def forget_effects(self) -> None:
        """Forgets what a program has called that has failed."""
        for forget in self.forgetting:
            forget()


def _unset(*_: Any) -> Any:
    raise RuntimeError("hybridml_compiler: a hook is called before it is set; import hybridml_compiler first")


def _no_group(name: str, group: str, *_: Any) -> Any:
    raise RuntimeError(f"{name}: there is no group {group!r} in this process; call hybridml.distributed.init() first")


def _no_queue(name: str, queue: str, *_: Any) -> Any:
    raise RuntimeError(f"{name}: there is no queue {queue!r} in this process; import hybridml.data and make it first")


hooks = Hooks(
    _unset, _unset, np.matmul, lambda *_: None, np.array, np.ascontiguousarray, _unset, _unset, _unset, _unset,
    _unset, lambda *_: None, lambda *_: None, {"group": _no_group, "queue": _no_queue}, [],
)  # fmt: skip
