"""Parameters, and writing new values into many of them at once.

`Parameter` is a mark, not a type: a parameter is a plain `Tensor` that is to be trained. Dispatch
recognises a tensor by its exact type; a subclass would take the slow way in every operation.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import chain, repeat
from operator import setitem
from typing import TYPE_CHECKING, Any

from hybridml_compiler.errors import ShapeError
from hybridml_compiler.weak import WeakValues

from .. import arrays as xp
from ..core.aliasing import assign, stamp
from ..core.context import current_interpreter
from ..core.tensor import Tensor

# What `Parameter` made, by identity: a frozen parameter is still one. (A tensor has no hash by value, so no WeakSet.)
_marked: WeakValues[int, Tensor] = WeakValues()


def is_parameter(value: object) -> bool:
    """Whether a value is a tensor made by `Parameter`, or any leaf tensor that requires a gradient."""
    kind: Any = type(value)
    if kind is not Tensor and getattr(kind, "home", None) is None:  # no tensor, or one of a trace
        return False
    assert isinstance(value, Tensor)
    return _marked.get(id(value)) is value or (value.requires_grad and value.is_leaf)


def mark(tensor: Tensor) -> None:
    """Makes a tensor a parameter, also where it requires no gradient."""
    _marked.add(id(tensor), tensor)


if TYPE_CHECKING:  # for a reader of types it is a Tensor

    class Parameter(Tensor):
        def __init__(self, data: Any, requires_grad: bool = True) -> None: ...

else:

    class _ParameterMeta(type):
        def __instancecheck__(cls, instance: object) -> bool:
            return is_parameter(instance)

        def __call__(cls, data: Any, requires_grad: bool = True) -> Tensor:
            tensor = xp.asarray(data).detach().requires_grad_(requires_grad)
            mark(tensor)
            return tensor

    class Parameter(metaclass=_ParameterMeta):
        """``Parameter(data, requires_grad=True)``: a leaf `Tensor` over the same memory as `data`, to be trained.

        ``isinstance(t, Parameter)`` is True for what this made and for any leaf tensor that requires a gradient.

        >>> p = Parameter(hm.zeros((2,)))
        >>> p.requires_grad, type(p) is hm.Tensor, isinstance(p, Parameter)
        (True, True, True)
        """


Writes = list[tuple[Tensor, Tensor]]  # (target, new value of the same shape and dtype)
RowWrites = list[tuple[Tensor, Tensor, Tensor]]  # (target, rows, new values of these)


def commit(writes: Writes, rows: Sequence[tuple[Tensor, Tensor, Tensor]] = ()) -> None:
    """Writes all new values, in place and unrecorded: an interrupt leaves either all old or all new ones.

    Ctrl-C arrives between two bytecodes of the main thread. The writes are one call of C code (`deque` draining a `map`
    of array assignments): there is no bytecode between the first write and the last. Inside a traced function they are
    part of the one native call.
    """
    everything = [target for target, *_ in (*writes, *rows)]
    if current_interpreter() is not None or any([type(target).home is not None for target in everything]):
        for target, value in writes:
            assign(target, value, "update")
        for target, where, value in rows:
            target[where] = value
        return
    for target, shape, value in [(t, t.shape, v) for t, v in writes] + [(t, v.shape, v) for t, _, v in rows]:
        if shape != value.shape or target.dtype != value.dtype or not target._array.flags.writeable:
            raise ShapeError(
                f"update: cannot write {value.dtype} {value.shape} into {target.dtype} {target.shape} in place"
                + ("" if target._array.flags.writeable else ": its memory is read-only, clone() the tensor first")
            )
    # Before the writes: a value kept for a gradient may be called stale too early, never too late.
    stamp(*everything)
    targets, values = [target._array for target in everything], [value._array for *_, value in (*writes, *rows)]
    places = chain(repeat(..., len(writes)), [where._array for _, where, _ in rows])
    deque(map(setitem, targets, places, values), maxlen=0)


__all__ = ["Parameter"]
