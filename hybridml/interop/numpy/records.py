"""The functions of `numpy.lib.recfunctions` that have a meaning for numbers without named fields. (Importing that
module takes as long as a small program takes to compile.)"""

from __future__ import annotations

from typing import Any

from hybridml_compiler.errors import ArgumentError

from ... import arrays as xp
from ...arrays.shaping.manipulation import _tensor
from .selecting import copyto
from .table import implements


@implements("numpy.lib.recfunctions.repack_fields")
def repack_fields(a: Any, align: bool = False, recurse: bool = False) -> Any:
    """The tensor itself: there is nothing between its fields."""
    return _tensor(a)


@implements("numpy.lib.recfunctions.require_fields")
def require_fields(array: Any, required_dtype: Any) -> Any:
    return xp.astype(_tensor(array), required_dtype)


@implements("numpy.lib.recfunctions.assign_fields_by_name")
def assign_fields_by_name(dst: Any, src: Any, zero_unassigned: bool = True) -> None:
    copyto(dst, src)


@implements("numpy.lib.recfunctions.stack_arrays")
def stack_arrays(
    arrays: Any, defaults: Any = None, usemask: bool = True, asrecarray: bool = False, autoconvert: bool = False
) -> Any:
    if usemask or asrecarray:
        raise ArgumentError("np.lib.recfunctions.stack_arrays: give usemask=False; tensors have no masks and no fields")
    return xp.concat([xp.ravel(_tensor(x)) for x in arrays], axis=0)
