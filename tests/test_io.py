"""Saving and loading: round trips, other readers of the format, atomic writes, files that are not what they seem."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

import hybridml as hm
from hybridml import nn
from hybridml.io import checkpoints as io
from hybridml_compiler import dtypes


@pytest.mark.parametrize("dtype", sorted(io.FORMAT))
@pytest.mark.parametrize("shape", [(), (3,), (2, 0), (2, 3, 4)])
def test_round_trip(tmp_path: Path, dtype: str, shape: tuple[int, ...]) -> None:
    values = np.random.default_rng(0).uniform(-100, 100, shape).astype(dtypes.canonical(dtype))
    path = tmp_path / "t.safetensors"
    hm.save({"a": hm.asarray(values), "b": values}, path)
    loaded = hm.load(path)
    for name in ("a", "b"):
        assert type(loaded[name]) is hm.Tensor and loaded[name].dtype == values.dtype
        np.testing.assert_array_equal(loaded[name].numpy(), values, strict=True)
    with hm.no_grad():
        loaded["a"].fill_(1)  # own, writable memory


def test_other_readers_and_writers_of_the_format(tmp_path: Path) -> None:
    path = tmp_path / "t.safetensors"
    hm.save({"w": hm.arange(6).reshape((2, 3)).T}, path, metadata={"from": "a test"})
    assert safetensors.numpy.load_file(path)["w"].tolist() == [[0, 3], [1, 4], [2, 5]]
    assert io.read_metadata(path)["from"] == "a test"
    safetensors.numpy.save_file({"h": np.asarray([1.5, -2], np.float16)}, path)
    assert hm.load(path)["h"].tolist() == [1.5, -2] and hm.load(path)["h"].dtype == hm.float16


def test_a_checkpoint_of_model_optimizer_and_schedule(tmp_path: Path) -> None:
    def make() -> tuple[nn.Module, hm.optim.Optimizer, hm.optim.LRScheduler]:
        model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
        optimizer = hm.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        return model, optimizer, hm.optim.CosineAnnealingLR(optimizer, 10)

    def train(parts: Any, steps: int) -> None:
        model, optimizer, schedule = parts
        for k in range(steps):
            optimizer.zero_grad()
            (model(hm.asarray(np.eye(3, dtype=np.float32) * (k + 1))) ** 2).mean().backward()
            optimizer.step()
            schedule.step()

    parts, twin = make(), make()
    train(parts, 3)
    path = tmp_path / "checkpoint.safetensors"
    names = ("model", "optimizer", "schedule")
    saved = {name: part.state_dict() for name, part in zip(names, parts, strict=True)}
    hm.save({**saved, "epoch": 3, "best": None, "note": "x", "curve": [1.5, (2, True)]}, path)
    loaded = hm.load(path)
    assert (loaded["epoch"], loaded["best"], loaded["note"], loaded["curve"]) == (3, None, "x", [1.5, (2, True)])
    for name, part in zip(names, twin, strict=True):
        part.load_state_dict(loaded[name])
    train(parts, 2)
    train(twin, 2)
    for one, other in zip(parts[0].state_dict().values(), twin[0].state_dict().values(), strict=True):
        assert (one.numpy() == other.numpy()).all()


def test_modules_are_saved_by_their_state_dict(tmp_path: Path) -> None:
    model, path = nn.Linear(3, 2), tmp_path / "model.safetensors"
    hm.save(model, path)
    assert sorted(hm.load(path)) == ["bias", "weight"]
    hm.save({"a": model, "a.weight": hm.zeros((1,))}, path)  # names that clash when joined
    loaded = hm.load(path)
    assert loaded["a"]["weight"].shape == (2, 3) and loaded["a.weight"].shape == (1,)


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda data: data[:-5], "not a whole safetensors file"),
        (lambda data: data[:20], "not a whole safetensors file"),
        (lambda data: b"", "not a whole safetensors file"),
        (lambda data: b"\x93NUMPY" + data, "not a whole safetensors file"),
        (lambda data: data[:8] + b"{" * (len(data) - 8), "not a whole safetensors file"),
        (lambda data: b"\xff" * 8 + data[8:], "not a whole safetensors file"),
        (lambda data: data.replace(b'"F32"', b'"BF6"'), "model.safetensors"),
        (lambda data: data.replace(b'"F32"', b'"U16"'), "model.safetensors"),
    ],
)
def test_a_broken_file_is_refused_by_name(tmp_path: Path, spoil: Any, words: str) -> None:
    path = tmp_path / "model.safetensors"
    hm.save({"w": hm.ones((4,))}, path)
    path.write_bytes(spoil(path.read_bytes()))
    with pytest.raises(io.CheckpointError) as caught:
        hm.load(path)
    assert words in str(caught.value) and "model.safetensors" in str(caught.value)


@pytest.mark.parametrize("tree", [{"w": hm.arange(3), "b": hm.ones((2,))}, {"epoch": 3, "w": [hm.ones((2,))]}])
def test_no_changed_byte_gives_other_values(tmp_path: Path, tree: Any) -> None:
    path = tmp_path / "t.safetensors"
    hm.save(tree, path, metadata={"from": "a test"})
    data, whole = path.read_bytes(), repr(hm.load(path))
    for k in range(len(data)):
        path.write_bytes(data[:k] + bytes((data[k] ^ 1,)) + data[k + 1 :])
        try:
            assert repr(hm.load(path)) == whole, k  # the padding of the header
        except io.CheckpointError:
            continue


def forged(path: Path, notes: dict[str, str], header: dict[str, Any] | None = None, data: bytes = b"") -> Path:
    """A file by other means than `save`, with checksums that are right."""
    entries = {"w": {"dtype": "U8", "shape": [len(data)], "data_offsets": [0, len(data)]}} if header is None else header
    text = json.dumps({"__metadata__": notes, **entries}).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    return path


@pytest.mark.parametrize(
    "tree",
    [
        "[",
        "3",
        '{"tensor": "other"}',
        '{"other": 1}',
        '{"dict": 3}',
        '{"list": [' * 3000 + '{"value": 1}' + "]}" * 3000,
    ],
    ids=lambda tree: tree[:20],
)
def test_a_broken_tree_is_refused(tmp_path: Path, tree: str) -> None:
    with pytest.raises(io.CheckpointError, match="does not hold the tree"):
        hm.load(forged(tmp_path / "t.safetensors", {io.TREE: tree}))


@pytest.mark.parametrize("shape", [[0] * 65, [0, 2**63], [0, 2**32, 2**32], [0, 2**64 - 1]], ids=str)
def test_shapes_that_no_array_has_are_refused(tmp_path: Path, shape: list[int]) -> None:
    header = {"w": {"dtype": "F32", "shape": shape, "data_offsets": [0, 0]}}
    with pytest.raises(io.CheckpointError, match=r"t\.safetensors is not a whole"):
        hm.load(forged(tmp_path / "t.safetensors", {}, header))


def test_headers_that_are_too_long_or_deep_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.safetensors"
    for data in (b"\xff" * 16, (10**8).to_bytes(8, "little") + b"{}", b"\x88\x13" + bytes(6) + b'{"a":' * 1000):
        path.write_bytes(data)
        for read in (hm.load, io.read_metadata):
            with pytest.raises(io.CheckpointError, match=r"t\.safetensors is not a whole"):
                read(path)


def test_bytes_of_a_bool_are_made_bools(tmp_path: Path) -> None:
    """NumPy takes other bytes than 0 and 1 as they are: their sum, and what `~` gives of them, are wrong."""
    header = {"w": {"dtype": "BOOL", "shape": [3], "data_offsets": [0, 3]}}
    loaded = hm.load(forged(tmp_path / "t.safetensors", {}, header, b"\0\1\xff"))["w"]
    assert loaded.tolist() == [False, True, True] and (~loaded).tolist() == [True, False, False]


def test_files_without_a_checksum_of_their_notes_are_read(tmp_path: Path) -> None:
    """The first versions had none: a flat file and a nested one, written by them."""
    path = tmp_path / "t.safetensors"
    header = {"w": {"dtype": "U8", "shape": [2], "data_offsets": [0, 2]}}
    assert hm.load(forged(path, {io.CHECKSUM: "f891f284", "epoch": "3"}, header, b"\5\6"))["w"].tolist() == [5, 6]
    assert io.read_metadata(path) == {"epoch": "3"}
    tree = '{"dict": [["w", {"tensor": "w"}], ["n", {"value": 3}]]}'
    loaded = hm.load(forged(path, {io.CHECKSUM: "6bf4623c", io.TREE: tree}, header, b"\5\6"))
    assert loaded["w"].tolist() == [5, 6] and loaded["n"] == 3


@pytest.mark.parametrize(
    "tree", [{"w": hm.arange(3)}, {"w": hm.arange(3), "n": 1}, {"n": 1}], ids=["flat", "nested", "empty"]
)
def test_damage_to_the_notes_is_seen(tmp_path: Path, tree: Any) -> None:
    """In every combination with damage to the keys of the checksums."""
    path = tmp_path / "t.safetensors"
    hm.save(tree, path, {"epoch": "12"})
    data = path.read_bytes()
    keys = [key.encode() for key in (io.CHECKSUM, io.NOTES, io.RESERVED) if key.encode() in data]
    for damaged in (data, *(data.replace(key, b"x" * len(key)) for key in keys)):
        path.write_bytes(damaged.replace(b'"epoch":"12"', b'"epoch":"13"'))
        for read in (hm.load, io.read_metadata):
            with pytest.raises(io.CheckpointError, match="checksum"):
                read(path)


def test_one_tree_has_one_file(tmp_path: Path) -> None:
    """Byte for byte, as tools that look for what has changed expect; and all tensors are aligned."""
    tree = {"b": np.ones(3, bool), "w": np.ones(2), "a": np.ones(1, np.float32), "n": 3}
    files = []
    for name in ("one", "two"):
        hm.save(tree, tmp_path / name, {"z": "1", "a": "ü"})
        files.append((tmp_path / name).read_bytes())
    assert files[0] == files[1]
    offsets = {name: entry for name, entry in json.loads(files[0][8 : 8 + files[0][0] + 256 * files[0][1]]).items()}
    assert [offsets[name]["data_offsets"] for name in "wab"] == [[0, 16], [16, 20], [20, 23]]
    assert len(files[0]) % 8 == 23 % 8


def test_dtypes_that_do_not_exist_here_are_named(tmp_path: Path) -> None:
    path = tmp_path / "t.safetensors"
    header = json.dumps({"w": {"dtype": "F8_E4M3", "shape": [8], "data_offsets": [0, 8]}}).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + b"\0" * 8)
    with pytest.raises(io.CheckpointError, match="'w' has dtype F8_E4M3"):
        hm.load(path)


def test_a_missing_file_and_what_cannot_be_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "t.safetensors"
    circle: dict[str, Any] = {}
    circle["a"] = circle
    with pytest.raises(FileNotFoundError):
        hm.load(path)
    with pytest.raises(FileNotFoundError, match=r"no/folder/t\.st'$"):
        hm.save({"w": hm.ones((1,))}, tmp_path / "no/folder/t.st")
    hm.save({"w": hm.ones((1,))}, path)
    before = path.read_bytes()
    for wrong, words in (
        ({"f": lambda: 0}, "'f' is of type function; only tensors"),
        ({"a": {"b": [object()]}}, "'a.b.0' is of type object"),
        ({"a": {("x",): 1}}, "keys must be strings"),
        ({"c": np.zeros(2, complex)}, "complex128"),
        ({"c": np.complex64(1)}, "'c' is of type complex64"),
        ([1, 2], "needs a dict or a Module"),
        ({"__metadata__": np.zeros(2)}, "no tensor named '__metadata__'"),
        ({"w": {"a\ud800": np.zeros(2)}}, r"UTF-8 can hold, got .*w\.a.{1,3}ud800'"),
        (circle, "100 levels deep, or contains itself"),
    ):
        with pytest.raises((TypeError, hm.ArgumentError), match=words):
            hm.save(wrong, path)
    with pytest.raises(hm.ArgumentError, match=r"got 'hybridml\.tree'; choose another"):
        hm.save({"w": hm.ones((1,))}, path, {"hybridml.tree": "x"})
    monkeypatch.setattr(io, "HEADER_LIMIT", 1000)
    with pytest.raises(hm.ArgumentError, match="save long lists of numbers as tensors"):
        hm.save({"history": list(range(1000))}, path)
    assert path.read_bytes() == before


def test_numbers_of_numpy_come_back_as_pythons(tmp_path: Path) -> None:
    path = tmp_path / "t.safetensors"
    hm.save({"loss": np.float32(0.5), "best": np.float64(0.1), "count": np.int64(3), "done": np.bool_(True)}, path)
    loaded = hm.load(path)
    assert loaded == {"loss": 0.5, "best": 0.1, "count": 3, "done": True}
    assert [type(value) for value in loaded.values()] == [float, float, int, bool]


def test_names_that_the_format_keeps_are_values_of_a_nested_dict(tmp_path: Path) -> None:
    path = tmp_path / "t.safetensors"
    hm.save({"__metadata__": hm.ones((2,)), "hybridml.tree": 3}, path)
    loaded = hm.load(path)
    assert loaded["__metadata__"].tolist() == [1, 1] and loaded["hybridml.tree"] == 3


def test_notes_of_one_file_are_notes_of_the_next(tmp_path: Path) -> None:
    path = tmp_path / "t.safetensors"
    hm.save({"w": [hm.ones((1,)), 3]}, path, {"epoch": "12"})
    hm.save({"w.0": hm.ones((1,)), "x": hm.zeros((1,))}, path, io.read_metadata(path))
    assert sorted(hm.load(path)) == ["w.0", "x"] and io.read_metadata(path) == {"epoch": "12"}


def test_a_deep_tree_is_read_from_a_deep_stack(tmp_path: Path) -> None:
    path, tree = tmp_path / "t.safetensors", {"w": hm.ones((1,))}
    for _ in range(io.DEPTH - 1):
        tree = {"a": tree}

    def at(depth: int, call: Callable[[], Any]) -> Any:
        return call() if depth == 0 else at(depth - 1, call)

    at(300, lambda: hm.save(tree, path))
    loaded = at(300, lambda: hm.load(path))
    while "a" in loaded:
        loaded = loaded["a"]
    assert loaded["w"].tolist() == [1]
