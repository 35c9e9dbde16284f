"""Errors a user can meet: every message says what was asked, what was got, where in the user's code, and how to fix it.

The same constructors are used by shape inference (`infer`) in both execution styles, which is why an eager and a traced
program raise the same type with the same text.
"""

from __future__ import annotations

import linecache
import os
import sys
import warnings
from functools import lru_cache
from types import CodeType, FrameType
from typing import Any, ClassVar

import numpy as np

__all__ = [
    "ArgumentError", "AxisError", "CollectiveError", "CompileError", "CompileWarning", "DTypeError", "DeadlineError",
    "DeviceError", "GradientError", "HybridmlError", "LinAlgError", "MaskError", "OutOfBoundsError",
    "OutOfMemoryError", "ShapeError", "TraceError",
]  # fmt: skip

_PACKAGES = tuple(
    os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), name) + os.sep
    for name in ("hybridml", "hybridml_compiler")
)
MODELS = _PACKAGES[0] + "models" + os.sep  # published architectures: code as users write it, and copy it
_OF_MODELS = tuple(MODELS + name for name in ("__init__.py", "batches.py", "losses.py", "registry.py"))
LOCATION = "\n  at "  # between a message and the user's line
_GENERATED = ("<dispatch ", "<record ", "<spellings")  # names of code that has no file
_INTERNAL_SUFFIXES = ("contextlib.py", "functools.py", "<frozen", os.path.join("numpy", "lib", "mixins") + ".py")


def is_ours(filename: str) -> bool:
    """Whether a file is the framework's own."""
    ours = filename.startswith((*_PACKAGES, *_GENERATED))
    return ours and (not filename.startswith(MODELS) or filename.startswith(_OF_MODELS))


@lru_cache(maxsize=4096)  # every cell of a notebook is a file
def is_internal(filename: str) -> bool:
    """Whether a file is the framework's or a trampoline of the standard library, not the user's."""
    return is_ours(filename) or filename.endswith(_INTERNAL_SUFFIXES)


def user_frame(frame: FrameType | None = None) -> FrameType | None:
    """The innermost frame (from `frame` on) that belongs to the user, or None when the framework was entered from
    nowhere."""
    frame = frame or sys._getframe(1)
    while frame is not None and is_internal(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


_internal: dict[str, bool] = {}  # `is_internal` of the files that have been met, at a third of its time


def user_place() -> tuple[CodeType, int] | None:
    """Code of the user, and the instruction in it, that is running: its line is looked up when somebody asks. 0.1 us a
    frame."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        internal = _internal.get(code.co_filename)
        if internal is None:
            internal = _internal[code.co_filename] = is_internal(code.co_filename)
        if not internal:
            return code, frame.f_lasti
        frame = frame.f_back
    return None


def user_location() -> str:
    """`file.py:12: y = x @ w` of the user's innermost line; empty when there is none."""
    frame = user_frame()
    if frame is None or (line := frame.f_lineno) is None:  # Python's own jumps are of no line
        return ""
    return describe_line(frame.f_code.co_filename, line)


def line_number(code: CodeType, instruction: int) -> int:
    """The line of an instruction, as a frame's `f_lasti` counts them."""
    number = code.co_firstlineno
    for start, end, line in code.co_lines():
        if start <= instruction < end and line is not None:
            number = line
    return number


def describe_line(filename: str, lineno: int) -> str:
    """`model.py:12: y = x @ w`, or `In [3], line 12: y = x @ w` in the third cell of a notebook."""
    source = _source(filename, lineno)
    shown = line_name(file_name(filename), lineno)
    return f"{shown}: {source}" if source else shown


def line_name(name: str, lineno: int) -> str:
    """The words for a line of a file, or of a cell, that `file_name` has named."""
    return f"{name}, line {lineno}" if name.startswith("In [") else f"{name}:{lineno}"


def file_name(filename: str) -> str:
    """The name by which the user knows a file: its last part, and for the cell of a notebook its number."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    told = getattr(shell.compile, "format_code_name", None) if shell is not None else None  # since IPython 8
    cell = told(filename) if told is not None else None  # a cell run again has a new number
    if cell is not None:
        return str(cell[1]).replace("In[", "In [")
    return filename if filename.startswith("<") else os.path.basename(filename)


@lru_cache(maxsize=4096)  # as `linecache`, which reads a file once; a model's lines make many nodes each
def _source(filename: str, lineno: int) -> str:
    return linecache.getline(filename, lineno).strip()


def warn(message: str, category: type[Warning] = RuntimeWarning) -> None:
    """Warns at the user's innermost line."""
    frame = user_frame()
    if frame is None:
        warnings.warn(message, category, stacklevel=2)
        return
    file, module = file_name(frame.f_code.co_filename), frame.f_globals.get("__name__", "__main__")
    registry = frame.f_globals.setdefault("__warningregistry__", {})
    shown = file if file.startswith("In [") else frame.f_code.co_filename
    warnings.warn_explicit(message, category, shown, frame.f_lineno, module, registry)


def with_location(message: str) -> str:
    """Append the user's line to a message (once)."""
    where = user_location()
    return f"{message}{LOCATION}{where}" if where and LOCATION not in message else message


class HybridmlError(Exception):
    """Base of the framework's own errors; the user's line is appended to the message when it is raised.

    >>> import hybridml as hm
    >>> try:
    ...     hm.ones(2) + hm.ones(3)
    ... except hm.HybridmlError as error:
    ...     print(type(error).__name__)
    ShapeError
    """

    def __init__(self, message: str) -> None:
        super().__init__(with_location(message))


class ShapeError(HybridmlError, ValueError):
    """Shapes or axes that do not fit the operation.

    >>> import hybridml as hm
    >>> hm.ones(2) + hm.ones(3)
    Traceback (most recent call last):
        ...
    hybridml_compiler.errors.ShapeError: add: shapes f32[2] and f32[3] do not broadcast...
    """


class AxisError(ShapeError, IndexError):
    """An axis that a shape has not.

    >>> import hybridml as hm
    >>> hm.sum(hm.ones(2), axis=1)
    Traceback (most recent call last):
        ...
    hybridml_compiler.errors.AxisError: sum: axis 1 does not exist in f32[2]; use -1 to 0...
    """


class MaskError(ShapeError, IndexError):
    """A mask that does not fit the array that it selects from, or index arrays that do not fit each other.

    >>> import hybridml as hm
    >>> hm.ones(3)[hm.tensor([True, False])]
    Traceback (most recent call last):
        ...
    hybridml_compiler.errors.MaskError: index: a mask of shape (2,) does not fit f32[3]...
    """


class DTypeError(HybridmlError, TypeError):
    """A data type that the operation does not take.

    >>> import hybridml as hm
    >>> hm.bitwise_and(hm.ones(2), 1)
    Traceback (most recent call last):
        ...
    hybridml_compiler.errors.DTypeError: bitwise_and: takes integers or bool...
    """


def is_late(error: BaseException) -> bool:
    """Whether an error is that of an earlier call on a device, which was not waited for."""
    return getattr(error, "is_late", False)


class OutOfBoundsError(HybridmlError, IndexError):
    """An index outside of the axis it indexes.

    >>> import hybridml as hm
    >>> hm.arange(3)[5]
    Traceback (most recent call last):
        ...
    hybridml_compiler.errors.OutOfBoundsError: index: 5 is out of bounds for axis 0 of i64[3]...
    """


class ArgumentError(HybridmlError, ValueError):
    """An argument (not a shape) whose value the operation does not take.

    >>> import hybridml as hm
    >>> hm.linspace(0, 1, num=-1)
    Traceback (most recent call last):
        ...
    hybridml_compiler.errors.ArgumentError: linspace: num must be 0 or more, got -1...
    """


class DeadlineError(TimeoutError):
    """Work that went on past a deadline. Python does not run the call again to find its line, as it does for the
    framework's other errors: that would be work past the deadline.

    >>> import hybridml as hm
    >>> with hm.deadline(0.01):
    ...     while True:
    ...         hm.ones(2) + 1
    Traceback (most recent call last):
        ...
    hybridml_compiler.errors.DeadlineError: the deadline of 0.01 s has passed...
    """

    def __init__(self, message: str) -> None:
        super().__init__(with_location(message))


class CollectiveError(RuntimeError):
    """Processes of a group do not call the same collective, or one of them has not come in time.

    Not a HybridmlError, as those of a compiled step are raised by running it again, which would call collectives twice.

    >>> import hybridml as hm
    >>> from hybridml import distributed as dist
    >>> def step():
    ...     return dist.all_reduce(hm.ones(2)) if dist.get_rank() == 0 else dist.broadcast(hm.ones(2))
    >>> dist.run_threads(2, step)
    Traceback (most recent call last):
        ...
    hybridml_compiler.errors.CollectiveError: rank ... of 2 has called ...; rank ... has called ...
    """

    def __init__(self, message: str) -> None:
        self.text = message  # without the line
        super().__init__(with_location(message))


class _QueueError(RuntimeError):
    """Base of what queues raise. Not a HybridmlError, as those of a compiled step are raised by running it again."""

    def __init__(self, message: str) -> None:
        super().__init__(with_location(message))


class OutOfRangeError(_QueueError):
    """A queue that is closed and has no more elements, or fewer than are asked for: the end of its data.

    >>> import hybridml as hm
    >>> queue = hm.data.Queue(4, ())
    >>> queue.close()
    >>> queue.dequeue()
    Traceback (most recent call last):
        ...
    hybridml_compiler.errors.OutOfRangeError: dequeue: ... is closed and has no more elements...
    """


class CancelledError(_QueueError):
    """A queue that is closed and takes no more elements.

    >>> import hybridml as hm
    >>> queue = hm.data.Queue(4, ())
    >>> queue.close()
    >>> queue.enqueue(1.0)
    Traceback (most recent call last):
        ...
    hybridml_compiler.errors.CancelledError: enqueue: ... is closed...
    """


class LinAlgError(HybridmlError, np.linalg.LinAlgError):
    """A matrix that lacks the result asked for: an inverse, a Cholesky factor, eigenvalues that converge.

    >>> import hybridml as hm
    >>> hm.linalg.inv(hm.zeros((2, 2)))
    Traceback (most recent call last):
        ...
    hybridml_compiler.errors.LinAlgError: inv: f32[2,2] is singular: its rank is 0 of 2; use pinv or lstsq...
    """


class _NoIndex(HybridmlError):
    """An error of `__index__`, made of an array: `array[mask]` drops the error, whose words take 5 us and are made
    where somebody reads them."""

    shown_as: ClassVar[type[HybridmlError]]
    __init__ = Exception.__init__

    def __str__(self) -> str:
        given, where, step = self.args[0], "", self.__traceback__
        if isinstance(given, str):
            return given
        while step is not None:
            if not is_internal(step.tb_frame.f_code.co_filename):
                where = LOCATION + describe_line(step.tb_frame.f_code.co_filename, step.tb_lineno)
            step = step.tb_next
        return self.words(given) + where

    def words(self, given: Any) -> str:
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"{self.shown_as.__name__}({str(self)!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return self.shown_as, (str(self),)


class NoIndexError(_NoIndex, DTypeError):
    """A DTypeError: no integer."""

    shown_as = DTypeError

    def words(self, given: Any) -> str:
        return (
            f"a tensor used as a Python index must be an integer, got {given.dtype.name}; use int() (one is asked for "
            "by `tensor * sequence` too, where the sequence is no array of numbers)"
        )


class ManyIndicesError(_NoIndex, ShapeError):
    """A ShapeError: more than one integer, or none."""

    shown_as = ShapeError

    def words(self, given: Any) -> str:
        return (
            f"index: the truth value or number of a tensor with shape {given.shape} is ambiguous; reduce it first "
            "(any, all, sum)"
        )


NoIndexError.__name__ = NoIndexError.__qualname__ = "DTypeError"  # as it is shown


class GradientError(HybridmlError, RuntimeError):
    """A gradient that does not exist: no history, freed history, a value overwritten after it was saved.

    >>> import hybridml as hm
    >>> hm.ones(2).sum().backward()
    Traceback (most recent call last):
        ...
    hybridml_compiler.errors.GradientError: backward(): the result (shape ()) has no history...
    """


class DeviceError(HybridmlError, RuntimeError, TypeError):
    """Tensors of one operation on different devices, or one that NumPy cannot reach.

    >>> import hybridml as hm
    >>> hm.ones(2).to(device="reference") + hm.ones(2)
    Traceback (most recent call last):
        ...
    hybridml_compiler.errors.DeviceError: tensors of one operation are on 'reference' and on 'cpu'...
    """


class OutOfMemoryError(HybridmlError, MemoryError):
    """A device whose memory is used up: the message says by which lines of the program.

    >>> import hybridml as hm
    >>> hm.cuda.OutOfMemoryError is hm.errors.OutOfMemoryError
    True
    """


class TraceError(HybridmlError, RuntimeError):
    """Something in a traced function that a graph cannot hold.

    >>> import hybridml as hm
    >>> @hm.trace(strict=True)
    ... def double(x, seen):
    ...     seen["ndim"] = x.ndim
    ...     return x * 2
    >>> double(hm.ones(2), {})
    Traceback (most recent call last):
        ...
    hybridml_compiler.errors.TraceError: double changes what its argument seen contains...
    """


class CompileWarning(UserWarning):
    """A program that compiles, and takes longer to than it need.

    >>> issubclass(CompileWarning, UserWarning)
    True
    """


class CompileError(HybridmlError, RuntimeError):
    """The compiler broke its own rules; always a defect of hybridml, with the IR that shows it.

    >>> import hybridml as hm
    >>> issubclass(hm.CompileError, hm.HybridmlError)
    True
    """
