"""A row that calls a function of NumPy's on arrays, of those whose results have a shape and a dtype that follow from
the shapes and dtypes of their arguments."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from operator import attrgetter
from typing import Any

import numpy as np

from .. import dtypes
from ..aval import Aval
from ..errors import ArgumentError, LinAlgError
from .op import REQUIRED, Op, Sample
from .samples import fails

_OF_NUMPY = (
    "argpartition around average convolve corrcoef correlate cov cross digitize ediff1d gradient i0 interp isclose "
    "isin kron lexsort median nancumsum nanmax nanmean nanmedian nanmin nanprod nanstd nansum nanvar nan_to_num "
    "partition percentile polyder polyfit polyint polyval quantile round searchsorted sinc sort unwrap vander"
)
_OF_LINALG = "cholesky cond det eigvalsh inv matrix_norm matrix_power matrix_rank norm pinv solve vector_norm"
_OF_FFT = "fft fft2 fftn fftshift ifft ifft2 ifftn ifftshift irfft rfft"
# By the names that `numpy_function` has for them. NumPy imports its modules when they are asked for.
_PREFIXES = {"": _OF_NUMPY, "linalg.": _OF_LINALG, "fft.": _OF_FFT}
NAMES = frozenset(prefix + name for prefix, names in _PREFIXES.items() for name in names.split())
# Of `form`, what an argument is: an operand as an array, one as a number of Python's, a list, or a constant.
ARRAY, NUMBER, LIST, CONSTANT = "array", "number", "list", "constant"


def _called(xs: Sequence[np.ndarray], name: str, form: Any) -> Any:
    def made(part: tuple[str, Any]) -> Any:
        kind, value = part
        if kind == LIST:
            return [made(p) for p in value]
        return value if kind == CONSTANT else xs[value] if kind == ARRAY else xs[value].item()

    args, named = form
    with np.errstate(all="ignore"):
        return attrgetter(name)(np)(*map(made, args), **{key: made(part) for key, part in named})


def _eager(xs: Sequence[np.ndarray], *, name: str, form: Any) -> np.ndarray:
    try:
        found = _called(xs, name, form)
        if isinstance(found, tuple | list):
            raise TypeError(f"{len(found)} results")
        return np.asarray(found)
    except np.linalg.LinAlgError as error:
        raise LinAlgError(f"numpy_function: np.{name}: {error}") from None
    except (ValueError, TypeError) as error:
        raise ArgumentError(f"numpy_function: np.{name}: {error}") from None


def _like(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """An array for which the functions have a value: its last axis rises, and its matrices are positive definite."""
    if len(shape) < 2:
        return np.arange(np.prod(shape)).reshape(shape).astype(dtype)
    return np.broadcast_to(np.eye(shape[-2], shape[-1]), shape).astype(dtype)


@lru_cache(maxsize=512)  # a program has few, and passes ask again and again
def _type_of(name: str, form: Any, given: tuple[tuple[tuple[int, ...], np.dtype], ...]) -> Aval:
    found = _eager([_like(*one) for one in given], name=name, form=form)
    return Aval(found.shape, dtypes.canonical(found.dtype))


def _infer(xs: Sequence[Aval], *, name: str, form: Any) -> Aval:
    return _type_of(name, form, tuple([(tuple(map(int, x.shape)), x.dtype) for x in xs]))


_ONE = (((ARRAY, 0),), ())
_TWO = (((ARRAY, 0), (ARRAY, 1)), ())

numpy_function = Op(
    "numpy_function",
    "opaque",
    public=False,
    inputs=("xs",),
    variadic=True,
    params={"name": REQUIRED, "form": REQUIRED},
    infer=_infer,
    fails=True,
    eager=_eager,
    vjp=(None,),
    samples=lambda rng: (
        Sample(([np.eye(3) + 0.1],), {"name": "linalg.inv", "form": _ONE}, False),
        Sample(([np.eye(3) + 0.1, np.ones(3)],), {"name": "linalg.solve", "form": _TWO}, False),
        Sample(([np.asarray(1.5), np.arange(3.0), rng.random(3)],),
               {"name": "interp", "form": (((NUMBER, 0), (ARRAY, 1), (ARRAY, 2)), ())}, False),
        Sample(([rng.random((3, 4))],), {"name": "median", "form": (((ARRAY, 0),), (("axis", (CONSTANT, 1)),))}, False),
    ),
    error_samples=lambda: (
        fails(LinAlgError, "Singular matrix", [np.zeros((2, 2))], name="linalg.inv", form=_ONE),
        fails(ArgumentError, "np.kron", [np.zeros(2)], name="kron", form=_ONE),
    ),
    accepts="any",
    doc="A function of NumPy's, by its name and in its last bit; `form` says which arguments the operands are. Without "
    "derivatives.",
)  # fmt: skip

ROWS = (numpy_function,)
