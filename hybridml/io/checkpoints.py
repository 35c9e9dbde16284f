"""Saving and loading of tensors in the safetensors format: loading runs no code, other frameworks read the same file.

A plain dict of tensors is a plain safetensors file. Nested dicts, lists and the numbers and strings in them (an
optimizer's state, an epoch count) are kept as JSON in the file's metadata, so that one file holds a whole checkpoint.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from hybridml_compiler import dtypes
from hybridml_compiler.errors import ArgumentError

from ..core import atomic
from ..core.spellings import accepts_other_names
from ..core.tensor import Device, Tensor, adopt
from ..nn.module import Module
from . import torch_files
from .errors import CheckpointError

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
METADATA = "__metadata__"  # where a header has its notes, among the names of its tensors
RESERVED = "hybridml."  # how the metadata keys of this module begin
TREE = f"{RESERVED}tree"  # the structure of a nested object
CHECKSUM = f"{RESERVED}crc32"  # the checksum of the values: the format itself has none
NOTES = f"{RESERVED}notes"  # the checksum of all other notes
# How `save` writes the colon after each name of a header. The space, which nobody else writes so, tells that checksums
# belong into the file: damage to their own keys does not hide other damage.
MARK = '" :{"'
HEADER_LIMIT = 100_000_000  # bytes; safetensors reads no longer header
DEPTH = 100  # levels of a tree: their JSON has three each, and is to be read below a deep stack too


def save(
    obj: Mapping[str, Any] | Module, path: str | os.PathLike[str], metadata: Mapping[str, str] | None = None
) -> None:
    """Writes a module's state dict, or (nested) dicts and lists of tensors, numbers and strings, to `path`.

    Arrays come back as tensors, NumPy's real numbers as Python's.

    The write is atomic: a crash, a kill or Ctrl-C leaves the old file or the new one, never a part, and the next save
    into a folder removes what killed ones have left there. A file keeps its mode and owner; devices and pipes are
    written into. `metadata` are text notes that `hm.io.read_metadata` gives back.

    Raises TypeError for a value that the format cannot hold, ArgumentError for a name that it keeps for itself
    ("__metadata__", notes "hybridml.*") and for trees of more than 100 levels, before anything is written; OSError as
    `open(path, "wb")` does.

    >>> import os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "weights.safetensors")
    >>> save({"w": hm.ones((2,))}, path)
    >>> load(path)["w"].tolist()
    [1.0, 1.0]
    """
    tree = obj.state_dict() if isinstance(obj, Module) else obj
    if not isinstance(tree, Mapping):
        raise TypeError(
            f"save: needs a dict or a Module, got {type(obj).__name__}; write hm.save({{'x': x}}, path), or numpy.save "
            "for one array"
        )
    notes = {str(key): str(value) for key, value in (metadata or {}).items()}
    reserved = sorted(key for key in notes if key.startswith(RESERVED))
    if reserved:
        raise ArgumentError(
            f"save: metadata keys that begin with {RESERVED!r} belong to the format, got {reserved[0]!r}; "
            "choose another key (hm.io.read_metadata gives the notes of a file without them)"
        )
    arrays: dict[str, np.ndarray] = {}
    flat = all(isinstance(value, Tensor | np.ndarray) for value in tree.values())
    if flat and {type(key) for key in tree} <= {str}:
        if METADATA in tree:
            raise ArgumentError(f"save: safetensors has no tensor named {METADATA!r}; choose another name")
        arrays = {key: _array(value) for key, value in tree.items()}
    else:
        notes[TREE] = json.dumps(_flatten(tree, "", arrays, 0))
    notes[NOTES] = _checksum_of_notes(notes)
    notes[CHECKSUM] = _checksum(arrays, notes)
    order = sorted(arrays, key=lambda name: (-arrays[name].itemsize, name))  # as the library: all are aligned
    header = _header({name: arrays[name] for name in order}, notes)
    # Views, not copies: a checkpoint may be most of the memory.
    atomic.replace(path, [header, *(arrays[name].reshape(-1).view(np.uint8).data for name in order)])


def _header(arrays: Mapping[str, np.ndarray], notes: Mapping[str, str]) -> bytes:
    """Length and JSON before the bytes of the arrays, the same for the same tensors and notes."""
    parts: dict[str, Mapping[str, Any]] = {METADATA: dict(sorted(notes.items()))}
    start = 0
    for name, array in arrays.items():
        end = start + array.nbytes
        shape = list(array.shape)
        parts[name] = {"dtype": FORMAT[array.dtype.name], "shape": shape, "data_offsets": [start, end]}
        start = end
    try:
        text = f"{{{','.join(f'{_json(name)} :{_json(part)}' for name, part in parts.items())}}}".encode()
    except UnicodeEncodeError as error:
        raise ArgumentError(f"save: names and notes must be text that UTF-8 can hold, got {_near(error)!r}") from None
    if len(text) > HEADER_LIMIT:
        raise ArgumentError(
            f"save: names, numbers and strings take {len(text)} bytes of JSON, safetensors has at most {HEADER_LIMIT}; "
            "save long lists of numbers as tensors"
        )
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def _near(error: UnicodeEncodeError) -> str:
    """The text that cannot be encoded, with a little of the text before it."""
    return error.object[max(error.start - 20, 0) : error.end]


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def load(path: str | os.PathLike[str], map_location: Any = None, *, weights_only: bool = True) -> dict[str, Any]:
    """Reads what `save` wrote, or any safetensors file, a dict of tensors, nested if it was saved so, or a file of
    `torch.save` with a state dict: no code of it runs.

    map_location: the device of the tensors, the CPU unless it is given: files do not say where tensors were, and
    `load_state_dict` takes them from anywhere. Raises FileNotFoundError, CheckpointError for a file that is truncated,
    damaged or of another format, or ArgumentError for a device that there is not. Files of other writers have no
    checksum: damage to their values is not seen. `weights_only` is PyTorch's; no file has anything else that would run.

    >>> import os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "weights.safetensors")
    >>> save({"w": hm.ones((2,))}, path)
    >>> load(path, map_location=hm.device("cpu"))
    {'w': Tensor([1., 1.])}
    """
    place = Device("cpu" if map_location is None else map_location).type
    try:
        data = Path(path).read_bytes()
    except OSError as error:  # without the frames of pathlib
        raise type(error)(error.errno, f"load: {error.strerror}", os.fspath(path)) from None
    if data.startswith((torch_files.ZIP, torch_files.PICKLE)) and data[8:9] != b"{":
        found: dict[str, Any] = torch_files.read(data, path, place)
        return found
    arrays = _decode(data, path)
    notes = _notes(data[8 : 8 + int.from_bytes(data[:8], "little")], path)
    if CHECKSUM in notes and notes[CHECKSUM] != _checksum(arrays, notes):
        raise _broken(path, "the checksum of its values differs from the one it was saved with")
    tensors = {name: adopt(array).to(device=place) for name, array in arrays.items()}
    if TREE not in notes:
        return {name: tensors[name] for name in sorted(tensors)}  # the library's order is a new one each time
    try:
        return _unflatten(json.loads(notes[TREE]), tensors)
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise CheckpointError(
            f"load: {os.fspath(path)} does not hold the tree that its metadata describes: {error}"
        ) from None


def read_metadata(path: str | os.PathLike[str]) -> dict[str, str]:
    """The text notes that a safetensors file was saved with; its tensors are not read.

    Raises FileNotFoundError, or CheckpointError where they are damaged.

    >>> import os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "weights.safetensors")
    >>> save({"w": hm.ones((2,))}, path, metadata={"epoch": "12"})
    >>> read_metadata(path)
    {'epoch': '12'}
    """
    with open(path, "rb") as file:
        size = int.from_bytes(file.read(8), "little")
        header = file.read(min(size, HEADER_LIMIT))
    if len(header) < size:
        raise _broken(path, f"its header would have {size} bytes")
    notes = _notes(header, path)
    return {key: value for key, value in notes.items() if not key.startswith(RESERVED)}


def _notes(header: bytes, path: str | os.PathLike[str]) -> dict[str, str]:
    """All notes of a file, once they are seen to be whole."""
    try:
        notes = json.loads(header.decode()).get(METADATA, {})
        if not all(isinstance(value, str) for value in notes.values()):
            raise TypeError
    except (ValueError, AttributeError, TypeError, RecursionError):
        raise _broken(path, "its header cannot be read") from None
    if MARK.encode() in header and not {CHECKSUM, NOTES} <= notes.keys():
        raise _broken(path, "its checksums are missing")
    if NOTES in notes and notes[NOTES] != _checksum_of_notes(notes):
        raise _broken(path, "the checksum of its notes differs from the one it was saved with")
    return notes


def _decode(data: bytes, path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    library: Any = import_module("safetensors")  # of which `save` needs nothing
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
        try:
            array = np.frombuffer(entry["data"], wanted.newbyteorder("<")).reshape(entry["shape"])
        except (ValueError, OverflowError) as error:  # more axes, or longer ones, than an array can have
            raise _broken(path, f"tensor {name!r} of shape {entry['shape']!s:.80}: {error}") from None
        if wanted.kind == "b":
            array = array.view(np.uint8) != 0  # NumPy is wrong about bools of other bytes than 0 and 1
        arrays[name] = array.astype(wanted, copy=True)  # own, writable memory: a parameter may be trained in it
    return arrays


def _checksum_of_notes(notes: Mapping[str, str]) -> str:
    """CRC-32 of the notes, the checksums among them excepted."""
    plain = sorted((key, value) for key, value in notes.items() if key not in (NOTES, CHECKSUM))
    return f"{zlib.crc32(json.dumps(plain).encode()):08x}"


def _checksum(arrays: Mapping[str, np.ndarray], notes: Mapping[str, str]) -> str:
    """CRC-32 of the tree, of the checksum of all notes, and of every array: its name, dtype, shape and bytes.

    Files of the first versions have no checksum of their notes.
    """
    crc = zlib.crc32((notes.get(TREE, "") + notes.get(NOTES, "")).encode())
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name], arrays[name].dtype.newbyteorder("<"))
        crc = zlib.crc32(f"{name} {array.dtype.name} {arrays[name].shape}".encode(errors="surrogatepass"), crc)
        crc = zlib.crc32(array.reshape(-1).view(np.uint8).data, crc)
    return f"{crc:08x}"


def _broken(path: str | os.PathLike[str], why: str) -> CheckpointError:
    return CheckpointError(
        f"load: {os.fspath(path)} is not a whole safetensors file ({why}): damaged, cut short, or of another format"
    )


def _array(value: Tensor | np.ndarray) -> np.ndarray:
    array = value.detach().cpu().numpy() if isinstance(value, Tensor) else value
    if array.dtype.name not in FORMAT:
        raise TypeError(f"save: dtype {array.dtype} has no safetensors form; use one of {sorted(FORMAT)}")
    return np.asarray(array, dtype=array.dtype.newbyteorder("<"), order="C")


def _flatten(tree: Any, path: str, arrays: dict[str, np.ndarray], depth: int) -> Any:
    """The JSON form of a tree; tensors go to `arrays` under their dotted path."""
    if depth > DEPTH:
        raise ArgumentError(f"save: {path:.60}... is more than {DEPTH} levels deep, or contains itself")
    if isinstance(tree, Tensor | np.ndarray):
        name = path
        while name in arrays or name == METADATA:  # "a.b" may be a key beside a dict "a" with a key "b"
            name += "'"
        arrays[name] = _array(tree)
        return {"tensor": name}
    if isinstance(tree, Module):
        return _flatten(tree.state_dict(), path, arrays, depth)
    if isinstance(tree, Mapping):
        entries = [[key, _flatten(value, _join(path, key), arrays, depth + 1)] for key, value in tree.items()]
        wrong = [key for key in tree if not isinstance(key, str | int)]
        if wrong:
            raise TypeError(f"save: keys must be strings or integers, got {wrong[0]!r} under {path or 'the top'}")
        return {"dict": entries}
    if isinstance(tree, list | tuple):
        kind = "tuple" if isinstance(tree, tuple) else "list"
        return {kind: [_flatten(value, _join(path, k), arrays, depth + 1) for k, value in enumerate(tree)]}
    if (
        isinstance(tree, np.generic) and tree.dtype.name in FORMAT and tree.dtype.kind != "c"
    ):  # a loss that NumPy has averaged
        tree = tree.item()
    if tree is None or isinstance(tree, bool | int | float | str):
        return {"value": tree}
    raise TypeError(
        f"save: {path!r} is of type {type(tree).__name__}; only tensors, arrays, dicts, lists, tuples, real numbers, "
        "strings and None can be saved"
    )


def _join(path: str, key: object) -> str:
    return f"{path}.{key}" if path else str(key)


def _unflatten(tree: Any, tensors: dict[str, Tensor]) -> Any:
    ((kind, content),) = tree.items()
    match kind:
        case "tensor":
            return tensors[content]
        case "dict":
            return {key: _unflatten(value, tensors) for key, value in content}
        case "list":
            return [_unflatten(value, tensors) for value in content]
        case "tuple":
            return tuple(_unflatten(value, tensors) for value in content)
        case "value":
            return content
    raise ValueError(f"unknown entry {kind!r}")


for _fn in (load, save):
    accepts_other_names(_fn)
