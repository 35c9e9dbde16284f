"""DLPack: tensors of other libraries as ours and ours as theirs, over the same memory.

NumPy does both ways for every dtype it has. It has no bfloat16, so NumPy sees that as 16-bit integers: a capsule that
leaves gets the type code of bfloat16 written into it, one that arrives the code of integers.
Source: the DLPack header, https://dmlc.github.io/dlpack/latest/c_api.html.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from hybridml_compiler import dtypes
from hybridml_compiler.targets.device import DeviceArray, out_of_reach
from hybridml_compiler.targets.registry import find_device

_INTEGER, _BFLOAT16 = 0, 4  # kDLInt, kDLBfloat
_CUDA = 2  # kDLCUDA
# Bytes before DLTensor.dtype.code: in DLTensor pointer, device (8) and ndim (4); in DLManagedTensorVersioned the
# version, two pointers and the flags stand in front of the DLTensor, in DLManagedTensor nothing does.
_CODE_AT = {b"dltensor": 20, b"dltensor_versioned": 52}


def memory_of(array: DeviceArray, what: str) -> Any:
    """The memory of an array of a device as an array of another library; bfloat16 as 16-bit integers. DeviceError where
    no other library can have it."""
    export = getattr(array.device, "exported", None)
    if export is None:
        raise out_of_reach(array.device.name, what)
    return export(array, np.dtype(np.int16) if array.dtype.kind == "V" else array.dtype)


def exported(array: np.ndarray | DeviceArray, stream: Any, max_version: Any, dl_device: Any, copy: bool | None) -> Any:
    """The DLPack capsule of an array. A read-only one is copied for readers too old to be told of it."""
    narrow = array.dtype.kind == "V"
    if isinstance(array, DeviceArray):
        plain = memory_of(array, "__dlpack__")
    else:
        plain = array.view(np.int16) if narrow else array
    old = max_version is None or max_version[0] < 1
    if isinstance(plain, np.ndarray) and not plain.flags.writeable and copy is None and old:
        plain = plain.copy()
    capsule = plain.__dlpack__(stream=stream, max_version=max_version, dl_device=dl_device, copy=copy)
    if narrow:
        _type_code(capsule).value = _BFLOAT16
    return capsule


def imported(x: Any) -> np.ndarray | DeviceArray:
    """The memory of a DLPack object, or of one with `__cuda_array_interface__`, as an array of NumPy or of a GPU."""
    kind, index = x.__dlpack_device__() if hasattr(x, "__dlpack_device__") else (_CUDA, 0)
    source = _Readable(x) if hasattr(x, "__dlpack__") else x
    if kind == _CUDA:
        device: Any = find_device(f"cuda:{index}" if index else "cuda")
        found: DeviceArray = device.adopted(source)
        if isinstance(source, _Readable) and source.is_bfloat16:
            found.dtype = dtypes.canonical("bfloat16")
        return found
    array: np.ndarray = np.from_dlpack(source)
    return array.view(dtypes.canonical("bfloat16")) if source.is_bfloat16 else array


class _Readable:
    """A DLPack object as NumPy can read it."""

    def __init__(self, x: Any) -> None:
        self.x, self.is_bfloat16 = x, False

    def __dlpack_device__(self) -> Any:
        return self.x.__dlpack_device__()

    def __dlpack__(self, **asked: Any) -> Any:
        capsule = self.x.__dlpack__(**asked)
        code = _type_code(capsule)
        if code.value == _BFLOAT16:
            code.value, self.is_bfloat16 = _INTEGER, True
        return capsule


def _type_code(capsule: Any) -> ctypes.c_uint8:
    """The byte in a capsule that says of what kind its numbers are."""
    api = ctypes.pythonapi
    name_of = ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.py_object)(("PyCapsule_GetName", api))
    pointer_of = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_GetPointer", api))
    name = name_of(capsule)
    return ctypes.c_uint8.from_address(pointer_of(capsule, name) + _CODE_AT[name])
