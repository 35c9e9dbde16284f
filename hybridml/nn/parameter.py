"""Parameter: a mark, not a type. A parameter is a plain `Tensor` that is to be trained.

Dispatch recognises a tensor by its exact type; a subclass would take the slow way in every operation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hybridml_compiler.weak import WeakValues

from .. import arrays as xp
from ..core.tensor import Tensor

# What `Parameter` made, by identity: a frozen parameter is still one. (A tensor has no hash by value, so no WeakSet.)
_marked: WeakValues[int, Tensor] = WeakValues()


def is_parameter(value: object) -> bool:
    """Whether a value is a tensor made by `Parameter`, or any leaf tensor that requires a gradient."""
    if type(value) is not Tensor:
        return False
    return _marked.get(id(value)) is value or (value.requires_grad and value.is_leaf)


if TYPE_CHECKING:  # for a reader of types it is a Tensor

    class Parameter(Tensor):
        def __init__(self, data: Any, requires_grad: bool = True) -> None: ...

else:

    class _ParameterMeta(type):
        def __instancecheck__(cls, instance: object) -> bool:
            return is_parameter(instance)

        def __call__(cls, data: Any, requires_grad: bool = True) -> Tensor:
            tensor = xp.asarray(data).detach().requires_grad_(requires_grad)
            _marked.add(id(tensor), tensor)
            return tensor

    class Parameter(metaclass=_ParameterMeta):
        """``Parameter(data, requires_grad=True)``: a leaf `Tensor` over the same memory as `data`, to be trained.

        ``isinstance(t, Parameter)`` is True for what this made and for any leaf tensor that requires a gradient.

        >>> p = Parameter(hm.zeros((2,)))
        >>> p.requires_grad, type(p) is hm.Tensor, isinstance(p, Parameter)
        (True, True, True)
        """
