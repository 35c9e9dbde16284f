"""Methods of functions of numbers, as NumPy's ufuncs have them: `hm.add.outer(x, y)`, `hm.maximum.reduce(x)`.

A function has them if NumPy has a ufunc of its name. What they do is what NumPy's do on tensors (see ufuncs.py).
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from typing import Any

import numpy as np

from hybridml_compiler.errors import ArgumentError

from ...core.tensor import Tensor

NAMES = ("outer", "reduce", "accumulate", "at", "reduceat")


class Methods:
    """The methods of one function."""

    __slots__ = ("_ufunc",)

    def __init__(self, ufunc: np.ufunc) -> None:
        self._ufunc = ufunc

    def outer(self, x: Any, y: Any, /, *, out: Any = None, dtype: Any = None, where: Any = True) -> Tensor:
        """The function of every element of x with every element of y, of shape `x.shape + y.shape`.

        >>> import hybridml as hm
        >>> hm.subtract.outer(hm.tensor([1, 2]), hm.tensor([0, 5])).tolist()
        [[1, -4], [2, -3]]
        """
        return self._run("outer", (x, y), out=out, dtype=dtype, where=where)

    def reduce(
        self, x: Any, /, axis: Any = 0, dtype: Any = None, out: Any = None, keepdims: bool = False,
        initial: Any = None, where: Any = True,
    ) -> Tensor:  # fmt: skip
        """One element after the other put together by the function, along one axis, several, or all (None).

        >>> import hybridml as hm
        >>> hm.multiply.reduce(hm.tensor([[1, 2], [3, 4]])).tolist()
        [3, 8]
        """
        options = {"axis": axis, "dtype": dtype, "keepdims": keepdims, "initial": initial, "where": where}
        return self._run("reduce", (x,), out=out, **options)

    def accumulate(self, x: Any, /, axis: int = 0, dtype: Any = None, out: Any = None) -> Tensor:
        """The results of `reduce` after each element along the axis.

        >>> import hybridml as hm
        >>> hm.maximum.accumulate(hm.tensor([1, 3, 2])).tolist()
        [1, 3, 3]
        """
        return self._run("accumulate", (x,), out=out, axis=axis, dtype=dtype)

    def at(self, x: Tensor, index: Any, y: Any = None, /) -> None:
        """Updates x in place at the indices, one that comes again once more; of a function of one operand without y.

        >>> import hybridml as hm
        >>> x = hm.zeros(3)
        >>> hm.add.at(x, hm.tensor([0, 0, 2]), 1.0)
        >>> x.tolist()
        [2.0, 0.0, 1.0]
        """
        if self._ufunc.nin < 3 and (y is None) != (self._ufunc.nin == 1):
            given = "x, indices and y" if y is None else "x and indices"
            raise ArgumentError(f"{self._name('at')}: takes {given}, as {self._ufunc.__name__} takes {self._ufunc.nin}")
        self._run("at", (x, index) if y is None else (x, index, y))

    def reduceat(self, x: Any, indices: Any, /, axis: int = 0, dtype: Any = None, out: Any = None) -> Tensor:
        """The results of `reduce` over parts of the axis: from each index to the next one.

        >>> import hybridml as hm
        >>> hm.add.reduceat(hm.arange(6), hm.tensor([0, 2, 3])).tolist()
        [1, 2, 12]
        """
        return self._run("reduceat", (x, indices), out=out, axis=axis, dtype=dtype)

    def _name(self, method: str) -> str:
        return f"hm.{self._ufunc.__name__}.{method}"

    def _run(self, method: str, inputs: tuple[Any, ...], **options: Any) -> Any:
        from . import ufuncs

        if self._ufunc.signature is not None or self._ufunc.nout > 1 or (method != "at" and self._ufunc.nin != 2):
            kind = "" if method == "at" else " two"
            raise ArgumentError(
                f"{self._name(method)}: there is none; functions of{kind} numbers that return one have it, as add has"
            )
        return ufuncs.run(self._ufunc, method, inputs, options, of="hm")


def install(names: Mapping[str, Any]) -> None:
    """Gives the functions of a namespace that NumPy has as ufuncs their methods."""
    for name, function in names.items():
        ufunc = getattr(np, name, None)
        if type(ufunc) is np.ufunc and type(function) is types.FunctionType:
            methods = Methods(ufunc)
            function.__dict__.update((method, getattr(methods, method)) for method in NAMES)


def is_binary(function: Any) -> bool:
    """Whether all the methods are there to be called."""
    method = getattr(function, "outer", None)
    ufunc = getattr(getattr(method, "__self__", None), "_ufunc", None)
    return ufunc is not None and ufunc.nin == 2 and ufunc.nout == 1 and ufunc.signature is None
