"""Reads what `torch.save` wrote, state dicts and other containers of tensors, without running code of the pickle in it.

Nothing is called but the functions of this module and Python's own containers: a name that is not in `NAMES` ends the
reading. Files of PyTorch 1.6 and later are zip archives (`data.pkl`, and one member for each storage), those before are
pickles one after the other with the storages behind them (PyTorch's `torch.serialization`).
"""

from __future__ import annotations

import io
import os
import pickle
import sys
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, BinaryIO, ClassVar, Literal

import numpy as np

from hybridml_compiler import dtypes

from ..core.tensor import Tensor, adopt
from ..nn.parameter import Parameter
from .errors import CheckpointError

ZIP, PICKLE = b"PK\x03\x04", b"\x80"  # how the files begin, since PyTorch 1.6 and before
_MAGIC, _PROTOCOL = 0x1950A86A20F9469CFC6C, 1001  # of files before 1.6


class _Refused(Exception):
    """Raised for what a file has that is not read."""


_DTYPES = {
    "Double": "float64", "Float": "float32", "Half": "float16", "BFloat16": "bfloat16", "Long": "int64",
    "Int": "int32", "Short": "int16", "Char": "int8", "Byte": "uint8", "Bool": "bool",
    "ComplexFloat": "complex64", "ComplexDouble": "complex128",
}  # fmt: skip


_BYTES = np.dtype("V1")  # of a storage without a dtype


def _tensor(storage: np.ndarray, offset: int, size: Sequence[int], stride: Sequence[int], *rest: Any) -> Tensor:
    """A tensor over a storage; `rest` begins with whether it requires grad."""
    return _strided(storage, offset, size, stride, bool(rest and rest[0]))


def _tensor_of_bytes(
    storage: np.ndarray, offset: int, size: Sequence[int], stride: Sequence[int], wants: bool, hooks: Any,
    dtype: np.dtype, *rest: Any,
) -> Tensor:  # fmt: skip
    """A tensor over a storage without a dtype of its own."""
    return _strided(storage.view(dtype), offset, size, stride, bool(wants))


def _strided(storage: np.ndarray, offset: int, size: Sequence[int], stride: Sequence[int], wants: bool) -> Tensor:
    if storage.dtype == _BYTES:
        raise _Refused("a tensor has no dtype")
    ends = [(n - 1) * step for n, step in zip(size, stride, strict=True)]
    if min((offset, *size, *stride)) < 0 or (0 not in size and offset + sum(ends) >= len(storage)):
        raise _Refused(f"a tensor of shape {tuple(size)} is not inside its storage of {len(storage)} elements")
    steps = [step * storage.itemsize for step in stride]
    start = storage[offset:] if 0 not in size else storage[:0]
    found = adopt(np.lib.stride_tricks.as_strided(start, tuple(size), steps))
    return found.requires_grad_() if wants else found


def _parameter(data: Tensor, wants: bool = True, *rest: Any) -> Parameter:
    return Parameter(data.detach(), requires_grad=bool(wants))


# What a pickle may name: a dtype, or what is called with what it says.
NAMES: Mapping[tuple[str, str], Any] = {
    ("collections", "OrderedDict"): OrderedDict,
    ("builtins", "set"): set,
    ("torch", "Size"): tuple,
    ("torch", "device"): lambda kind, index=None: kind if index is None else f"{kind}:{index}",
    ("torch._utils", "_rebuild_tensor_v2"): _tensor,
    ("torch._utils", "_rebuild_tensor"): _tensor,
    ("torch._utils", "_rebuild_tensor_v3"): _tensor_of_bytes,
    ("torch._utils", "_rebuild_parameter"): _parameter,
    ("torch._utils", "_rebuild_parameter_with_state"): _parameter,
    ("torch.storage", "UntypedStorage"): _BYTES,
    **{("torch", f"{name}Storage"): dtypes.canonical(dtype) for name, dtype in _DTYPES.items()},
    **{("torch", dtype): dtypes.canonical(dtype) for dtype in (*_DTYPES.values(), "uint16", "uint32", "uint64")},
}


class _Reader(pickle._Unpickler):
    """An unpickler that finds only `NAMES`, and sets no attributes: the one in C would set those of functions."""

    stack: list[Any]

    def __init__(self, file: BinaryIO, storage: Callable[..., np.ndarray]) -> None:
        super().__init__(file, encoding="utf-8")
        self.storage = storage

    def load_build(self) -> None:
        state = self.stack.pop()
        if type(self.stack[-1]) is not OrderedDict or type(state) is not dict:  # `_metadata` of a state dict: versions
            raise _Refused("it sets attributes of objects, which only their code can make")

    dispatch: ClassVar[Any] = {**pickle._Unpickler.dispatch, pickle.BUILD[0]: load_build}

    def find_class(self, module: str, name: str) -> Any:
        module = {"__builtin__": "builtins"}.get(module, module)
        if (module, name) not in NAMES:
            raise _Refused(
                f"it holds an object of {module}.{name}, which only that code can make; save what "
                "`state_dict()` returns, not the object itself"
            )
        return NAMES[module, name]

    def persistent_load(self, pid: Any) -> np.ndarray:
        kind, dtype, key, _, count, *view = pid
        if kind != "storage" or not isinstance(dtype, np.dtype):
            raise _Refused(f"it holds a {kind} of {dtype}")
        if view and view[0] is not None:
            raise _Refused("its storages are views of others: save it with PyTorch 1.6 or later")
        return self.storage(key, dtype, count)


def read(data: bytes, path: str | os.PathLike[str], place: str = "cpu") -> Any:
    """The object in a file of `torch.save`, with tensors in place of PyTorch's, on a device. On the CPU, tensors that
    shared memory share it.

    Raises CheckpointError for a file that is damaged, or holds anything but tensors, numbers, strings and containers.
    """
    try:
        return _plain(_zipped(data) if data.startswith(ZIP) else _pickled(data), {}, place)
    except _Refused as error:
        why = str(error)
    except (zipfile.BadZipFile, pickle.UnpicklingError, EOFError, NotImplementedError) as error:
        why = f"it is damaged, cut short, or of another format: {type(error).__name__} {error}"
    except Exception as error:  # the bytes decide what an unpickler raises: struct.error, KeyError, MemoryError ...
        why = f"its pickle makes no sense: {type(error).__name__}: {error}"
    raise CheckpointError(f"load: {os.fspath(path)} cannot be read as a file of torch.save: {why:.400}")


def _zipped(data: bytes) -> Any:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        names = archive.namelist()
        found = [name for name in names if name.endswith("/data.pkl") and name.count("/") == 1]
        if len(found) != 1 or found[0].replace("data.pkl", "constants.pkl") in names:
            raise _Refused("it is an archive of something else, as TorchScript's; save a `state_dict()`")
        if any(member.compress_type != zipfile.ZIP_STORED for member in archive.infolist()):
            raise _Refused("its members are compressed, which torch.save does not do")
        root = found[0].removesuffix("data.pkl")
        order = archive.read(f"{root}byteorder").decode() if f"{root}byteorder" in names else "little"
        known: dict[str, np.ndarray] = {}

        def storage(key: str, dtype: np.dtype, count: int) -> np.ndarray:
            if key not in known:
                known[key] = _elements(archive.read(f"{root}data/{key}"), dtype, order)
            return known[key]

        return _Reader(io.BytesIO(archive.read(found[0])), storage).load()


def _pickled(data: bytes) -> Any:
    """The object of a file before PyTorch 1.6: tensors come before the numbers of their storages do."""
    file = io.BytesIO(data)
    made: dict[str, np.ndarray] = {}

    def storage(key: str, dtype: np.dtype, count: int) -> np.ndarray:
        if key not in made:
            if not 0 <= count <= len(data) // dtype.itemsize:
                raise _Refused(f"a storage of {count} elements is larger than the file")
            made[key] = np.empty(count, dtype)
        return made[key]

    read = partial(_Reader, file, storage)
    if read().load() != _MAGIC or read().load() != _PROTOCOL:
        raise _Refused("it is a pickle, but none of torch.save's")
    order: Literal["little", "big"] = "little" if read().load()["little_endian"] else "big"
    found = read().load()
    for key in read().load():
        count = int.from_bytes(file.read(8), order)
        target = made[key]
        values = _elements(file.read(count * target.itemsize), target.dtype, order)
        if len(values) != len(target):
            raise EOFError
        target[...] = values
    return found


def _elements(data: bytes, dtype: np.dtype, order: str) -> np.ndarray:
    """The elements of a storage, in memory of their own."""
    array = np.frombuffer(bytearray(data), np.uint8 if dtype.kind == "b" else dtype)
    if order != sys.byteorder:
        if dtype == _BYTES:
            raise _Refused("a storage without a dtype has the bytes of its elements in another order")
        array = array.byteswap()
    return array != 0 if dtype.kind == "b" else array


def _plain(found: Any, known: dict[int, Any], place: str) -> Any:
    """Python's own containers in place of their subclasses; `known`, by identity, as what is shared stays so."""
    if found is None or isinstance(found, bool | int | float | complex | str | bytes | set | np.dtype):
        return found
    if id(found) not in known:
        known[id(found)] = _made(found, known, place)
    return known[id(found)]


def _made(found: Any, known: dict[int, Any], place: str) -> Any:
    if isinstance(found, Tensor):
        return found if place == "cpu" else found.to(device=place)
    if isinstance(found, dict):
        return {_key(key): _plain(value, known, place) for key, value in found.items()}
    if isinstance(found, list | tuple):
        return type(found)([_plain(value, known, place) for value in found])
    raise _Refused(f"it holds an object of type {type(found).__name__}")


def _key(key: Any) -> Any:
    if isinstance(key, str | int):
        return key
    raise _Refused(f"a key is {key!r:.80}: names and numbers are keys")
