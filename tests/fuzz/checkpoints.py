"""Damaged and malformed checkpoints: `hm.load` gives what was saved or raises CheckpointError, nothing else.

Damage (flipped bits, overwritten, cut, moved and foreign bytes) must be seen. Forged headers (huge sizes, odd types,
deep trees) may describe a file of other values, and then those are right; any other error is wrong.
"""

from __future__ import annotations

import copy
import json
import random
import tempfile
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

import hybridml as hm
from hybridml import nn
from hybridml.io import checkpoints as io
from hybridml_compiler import dtypes

from .case import cases


def checkpoints() -> list[tuple[dict[str, Any], dict[str, str]]]:
    """Trees and the notes beside them."""
    numbers = np.random.default_rng(0)
    every = {name: (numbers.random((2, 3)) * 9).astype(dtypes.canonical(name)) for name in io.FORMAT}
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    optimizer = hm.optim.Adam(model.parameters())
    return [
        ({"w": numbers.random((4, 5)), "b": numbers.random(5)}, {"epoch": "12"}),
        (every, {}),
        ({"empty": np.zeros((0, 3)), "scalar": np.array(2.5), "é": np.ones(1)}, {"é": "ü"}),
        ({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 12}, {"from": "fuzz", "n": "7"}),
        ({"a": [{"b": (1, 2.5, None, True, "x")}, numbers.random(300)], 3: {"4": np.arange(3)}}, {}),
        ({"big": numbers.random(5000).astype(np.float32), "state": {"step": 10}}, {"epoch": "12"}),
    ]


def plain(tree: Any) -> Any:
    """A tree in values that `==` compares to the bit."""
    if isinstance(tree, hm.Tensor | np.ndarray):
        array = np.asarray(tree.detach() if isinstance(tree, hm.Tensor) else tree)
        return "array", array.dtype.name, array.shape, array.tobytes()
    if isinstance(tree, Mapping):
        return [(key, plain(value)) for key, value in sorted(tree.items(), key=repr)]
    if isinstance(tree, list | tuple):
        return type(tree).__name__, [plain(value) for value in tree]
    return repr(tree)


def place(r: random.Random, data: bytes) -> int:
    """A place in a file; two of three times in its header, which is the smaller part."""
    end = min(len(data), 8 + int.from_bytes(data[:8], "little")) if r.random() < 0.67 else len(data)
    return r.randrange(end)


def flip(r: random.Random, data: bytes, other: bytes) -> bytes:
    damaged = bytearray(data)
    for _ in range(r.choice((1, 1, 2, 8))):
        damaged[place(r, data)] ^= 1 << r.randrange(8)
    return bytes(damaged)


def overwrite(r: random.Random, data: bytes, other: bytes) -> bytes:
    damaged = bytearray(data)
    for _ in range(r.choice((1, 1, 2, 3))):
        start, size = place(r, data), r.choice((1, 2, 3, 4, 8, 16, 64, 512))
        kinds = (r.randbytes(size), bytes(size), b" " * size, bytes(r.choices(b"abc0123456789", k=size)))
        damaged[start : start + size] = r.choice(kinds)[: len(damaged) - start]
    return bytes(damaged)


def cut(r: random.Random, data: bytes, other: bytes) -> bytes:
    start, size = place(r, data), r.choice((1, 2, 8, 100, len(data)))
    return r.choice((data[:start], data[:start] + data[start + size :], data + r.randbytes(size), data[start:]))


def move(r: random.Random, data: bytes, other: bytes) -> bytes:
    """Copies bytes of the file to another place of it."""
    start, target, size = place(r, data), place(r, data), r.choice((1, 4, 8, 32, 512))
    piece = data[start : start + size]
    return data[:target] + piece + data[target + r.choice((0, len(piece))) :]


def splice(r: random.Random, data: bytes, other: bytes) -> bytes:
    """The header of one file before the values of another, or two halves."""
    ends = [8 + int.from_bytes(file[:8], "little") for file in (data, other)]
    at = place(r, data)
    return r.choice((data[: ends[0]] + other[ends[1] :], other[: ends[1]] + data[ends[0] :], data[:at] + other[at:]))


ODD: tuple[Any, ...] = (
    0, 1, -1, 2**31, 2**53, 2**63, 2**64, 2**200, 1.5, float("nan"), float("inf"), True, None, "", "F32", "F8_E4M3",
    "F4", "C64", "BOOL", [], [0], [-1], [2**63], [2**63, 0], [1] * 65, [0] * 100, [2**32, 2**32], {}, {"tensor": "w"},
    "\ud800", "\0", "[" * 100_000, '{"dict": [[' * 3000, "3", "9" * 5000, "1e999",
)  # fmt: skip


def forge(r: random.Random, data: bytes, other: bytes) -> bytes:
    """A header with odd entries before the values as they are."""
    end = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:end])
    for _ in range(r.choice((1, 1, 2, 3))):
        if not header:
            break
        parent: Any = header
        while True:
            key = r.choice(list(parent) if isinstance(parent, dict) else range(len(parent)))
            if not (isinstance(parent[key], dict | list) and parent[key] and r.random() < 0.8):
                break
            parent = parent[key]
        action = r.random()
        if key == io.TREE and action < 0.6:
            parent[key] = r.choice(
                (json.dumps({r.choice(("dict", "list", "tensor", "value")): r.choice(ODD)}), deep(r))
            )
        elif action < 0.8:
            parent[key] = copy.deepcopy(r.choice(ODD))
        elif isinstance(parent, dict):
            value = parent.pop(key)
            if action < 0.9:
                parent[r.choice((f"{key}'", "", "__metadata__", io.TREE, "shape", "other"))] = value
    raw = json.dumps(header, ensure_ascii=r.random() < 0.5).encode(errors="surrogatepass")
    if r.random() < 0.1:
        raw = raw[:-1] + b"," + raw[1:]  # every name twice
    size = len(raw) if r.random() < 0.9 else r.choice((0, 1, len(raw) - 1, 10**8, 2**40, 2**63, 2**64 - 1))
    return size.to_bytes(8, "little") + raw + r.choice((data[end:], data[end:], b"", data[end:] * 2))


def deep(r: random.Random) -> str:
    start, finish = r.choice((('{"list": [', "]}"), ('{"dict": [["a", ', "]]}")))
    levels = r.choice((200, 900, 3000, 30_000))
    return start * levels + '{"value": 1}' + finish * levels


DAMAGES: tuple[Callable[[random.Random, bytes, bytes], bytes], ...] = (flip, overwrite, cut, move, splice)


def run(seconds: float, seed: int) -> tuple[int, list[str]]:
    """Number of malformed files that were loaded, and those that gave anything but their values or CheckpointError."""
    done, found = 0, []
    with tempfile.TemporaryDirectory(prefix="hybridml-fuzz-") as folder:
        path = Path(folder, "c.safetensors")
        whole = []
        for tree, notes in checkpoints():
            hm.save(tree, path, notes)
            whole.append((path.read_bytes(), (plain(tree), notes)))
        for number in cases(seconds, seed):
            done += 1
            r = random.Random(number)
            (data, right), (other, also) = r.choice(whole), r.choice(whole)
            damage = r.choice((*DAMAGES, forge))
            damaged = damage(r, data, other)
            path.write_bytes(damaged)
            wrong = check(path, None if damage is forge else (right, also))
            if wrong is not None:
                found.append(f"--seconds 0 --seed {number}: {damage.__name__}: {wrong}")
    return done, found


def check(path: Path, right: tuple[Any, ...] | None) -> str | None:
    """What is wrong with how a file was read; `right`: the values that it may have, None for any."""
    got = []
    for read in (hm.load, io.read_metadata):
        try:
            got.append(read(path))
        except io.CheckpointError as error:
            if str(path) not in str(error):
                return f"{read.__name__}: the error does not name the file: {error}"
        except Exception:
            return f"{read.__name__}: {traceback.format_exc()[-1500:]}"
    if right is not None and len(got) == 2 and (plain(got[0]), got[1]) not in right:
        return f"other values: {got}"[:1500]
    return None
