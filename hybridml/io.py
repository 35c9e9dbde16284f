"""Save and load tensors in the safetensors format: no code is run on loading, other frameworks read the same file.

A plain dict of tensors is a plain safetensors file. Nested dicts, lists and the numbers and strings in them (an
optimizer's state, an epoch count) are kept as JSON in the file's metadata, so that one file holds a whole checkpoint.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from hybridml_compiler import dtypes
from hybridml_compiler.errors import HybridmlError

from . import atomic
from .nn.module import Module
from .tensor import Tensor, adopt

FORMAT = {
    "bool": "BOOL",
    **{f"int{n}": f"I{n}" for n in (8, 16, 32, 64)},
    **{f"uint{n}": f"U{n}" for n in (8, 16, 32, 64)},
    "float16": "F16",
    "float32": "F32",
    "float64": "F64",
    "bfloat16": "BF16",
    "complex64": "C64",
}
NAMES = {code: name for name, code in FORMAT.items()}
TREE = "hybridml.tree"  # metadata key of the structure of a nested object
CHECKSUM = "hybridml.crc32"  # metadata key of the checksum: the format itself has none


class CheckpointError(HybridmlError, OSError):
    """A file that cannot be read as what it should be; the message names it."""


def save(
    obj: Mapping[str, Any] | Module, path: str | os.PathLike[str], metadata: Mapping[str, str] | None = None
) -> None:
    """Write a module's state dict, or (nested) dicts and lists of tensors, numbers and strings, to `path`.

    The write is atomic: a crash or Ctrl-C leaves the old file or the new one, never a part. Raises TypeError for a
    value that the format cannot hold, before anything is written.

    >>> import os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "weights.safetensors")
    >>> save({"w": hm.ones((2,))}, path)
    >>> load(path)["w"].tolist()
    [1.0, 1.0]
    """
    library = _safetensors()
    tree = obj.state_dict() if isinstance(obj, Module) else obj
    if not isinstance(tree, Mapping):
        raise TypeError(f"save: needs a dict or a Module, got {type(obj).__name__}")
    notes = {str(key): str(value) for key, value in (metadata or {}).items()}
    arrays: dict[str, np.ndarray] = {}
    flat = all(isinstance(value, Tensor | np.ndarray) for value in tree.values())
    if flat and {type(key) for key in tree} <= {str}:
        arrays = {key: _array(value) for key, value in tree.items()}
    else:
        notes[TREE] = json.dumps(_flatten(tree, "", arrays))
    notes[CHECKSUM] = _checksum(arrays, notes.get(TREE, ""))
    atomic.replace(path, [library.numpy.save(arrays, notes)])


def load(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read what `save` wrote, or any safetensors file: a dict of tensors, nested if it was saved so.

    Raises FileNotFoundError, or CheckpointError for a file that is truncated, damaged or of another format.
    """
    data = Path(path).read_bytes()
    arrays = _decode(data, path)
    notes = read_metadata(path, data)
    tree = notes.get(TREE)
    if CHECKSUM in notes and notes[CHECKSUM] != _checksum(arrays, tree or ""):
        raise _broken(path, "the checksum of its values differs from the one it was saved with")
    if tree is None:
        return {name: adopt(arrays[name]) for name in sorted(arrays)}  # the library's order is a new one each time
    try:
        return _unflatten(json.loads(tree), arrays)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"load: {os.fspath(path)} does not hold the tree that its metadata describes: {error}"
        ) from None


def read_metadata(path: str | os.PathLike[str], data: bytes | None = None) -> dict[str, str]:
    """The text notes of a safetensors file."""
    raw = Path(path).read_bytes() if data is None else data
    try:
        size = int.from_bytes(raw[:8], "little")
        header = json.loads(raw[8 : 8 + size])
        return dict(header.get("__metadata__", {}))
    except (ValueError, AttributeError, TypeError):
        raise _broken(path, "its header cannot be read") from None


def _decode(data: bytes, path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    library = _safetensors()
    try:
        entries = library.deserialize(data)
    except library.SafetensorError as error:
        raise _broken(path, str(error)) from None
    arrays = {}
    for name, entry in entries:
        code = entry["dtype"]
        if code not in NAMES:
            raise CheckpointError(
                f"load: {os.fspath(path)}: tensor {name!r} has dtype {code}, which hybridml does not have; "
                f"convert it to one of {sorted(NAMES)}"
            )
        wanted = dtypes.canonical(NAMES[code])
        array = np.frombuffer(entry["data"], wanted.newbyteorder("<")).reshape(entry["shape"])
        arrays[name] = array.astype(wanted, copy=True)  # own, writable memory: a parameter may be trained in it
    return arrays


def _checksum(arrays: Mapping[str, np.ndarray], tree: str) -> str:
    """CRC-32 of the tree and of every array: its name, dtype, shape and little-endian bytes."""
    crc = zlib.crc32(tree.encode())
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name], arrays[name].dtype.newbyteorder("<"))
        crc = zlib.crc32(f"{name} {array.dtype.name} {arrays[name].shape}".encode(), crc)
        crc = zlib.crc32(array.reshape(-1).view(np.uint8).data, crc)
    return f"{crc:08x}"


def _broken(path: str | os.PathLike[str], why: str) -> CheckpointError:
    return CheckpointError(
        f"load: {os.fspath(path)} is not a whole safetensors file ({why}): damaged, cut short, or of another format"
    )


def _array(value: Tensor | np.ndarray) -> np.ndarray:
    array = value.detach().numpy() if isinstance(value, Tensor) else value
    if array.dtype.name not in FORMAT:
        raise TypeError(f"save: dtype {array.dtype} has no safetensors form; use one of {sorted(FORMAT)}")
    return np.asarray(array, dtype=array.dtype.newbyteorder("<"), order="C")


def _flatten(tree: Any, path: str, arrays: dict[str, np.ndarray]) -> Any:
    """The JSON form of a tree; tensors go to `arrays` under their dotted path."""
    if isinstance(tree, Tensor | np.ndarray):
        name = path
        while name in arrays:  # "a.b" may be a key beside a dict "a" with a key "b"
            name += "'"
        arrays[name] = _array(tree)
        return {"tensor": name}
    if isinstance(tree, Module):
        return _flatten(tree.state_dict(), path, arrays)
    if isinstance(tree, Mapping):
        entries = [[key, _flatten(value, f"{path}.{key}" if path else str(key), arrays)] for key, value in tree.items()]
        wrong = [key for key in tree if not isinstance(key, str | int)]
        if wrong:
            raise TypeError(f"save: keys must be strings or integers, got {wrong[0]!r} under {path or 'the top'}")
        return {"dict": entries}
    if isinstance(tree, list | tuple):
        kind = "tuple" if isinstance(tree, tuple) else "list"
        return {kind: [_flatten(value, f"{path}.{k}" if path else str(k), arrays) for k, value in enumerate(tree)]}
    if tree is None or isinstance(tree, bool | int | float | str):
        return {"value": tree}
    raise TypeError(
        f"save: {path or 'the top'} is a {type(tree).__name__}; only tensors, dicts, lists, numbers and strings"
    )


def _unflatten(tree: Any, arrays: dict[str, np.ndarray]) -> Any:
    ((kind, content),) = tree.items()
    match kind:
        case "tensor":
            return adopt(arrays[content])
        case "dict":
            return {key: _unflatten(value, arrays) for key, value in content}
        case "list":
            return [_unflatten(value, arrays) for value in content]
        case "tuple":
            return tuple(_unflatten(value, arrays) for value in content)
        case "value":
            return content
    raise ValueError(f"unknown entry {kind!r}")


def _safetensors() -> ModuleType:
    try:
        import safetensors.numpy
    except ImportError:
        raise ImportError(
            "hm.save and hm.load need the safetensors package: pip install safetensors (or hybridml[demo])"
        ) from None
    return safetensors
