"""Saving and loading: round trips, other readers of the format, atomic writes, files that are not what they seem."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

import hybridml as hm
from hybridml import io, nn
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
        (lambda data: b"PK\x03\x04" + b"\0" * 100, "not a whole safetensors file"),
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
            assert repr(hm.load(path)) == whole, k  # a note has changed, or the padding of the header
        except io.CheckpointError:
            continue


def test_a_broken_tree_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.safetensors"
    data = {"w": hm.ones((1,))}
    for tree in ("[", "3", json.dumps({"tensor": "other"}), json.dumps({"other": 1}), json.dumps({"dict": 3})):
        hm.save(data, path, metadata={io.TREE: tree})
        with pytest.raises(io.CheckpointError, match="does not hold the tree"):
            hm.load(path)


def test_dtypes_that_do_not_exist_here_are_named(tmp_path: Path) -> None:
    path = tmp_path / "t.safetensors"
    header = json.dumps({"w": {"dtype": "F8_E4M3", "shape": [8], "data_offsets": [0, 8]}}).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + b"\0" * 8)
    with pytest.raises(io.CheckpointError, match="'w' has dtype F8_E4M3"):
        hm.load(path)


def test_a_missing_file_and_what_cannot_be_saved(tmp_path: Path) -> None:
    path = tmp_path / "t.safetensors"
    with pytest.raises(FileNotFoundError):
        hm.load(path)
    hm.save({"w": hm.ones((1,))}, path)
    before = path.read_bytes()
    for wrong, words in (
        ({"f": lambda: 0}, "f is a function"),
        ({"a": {"b": [object()]}}, "a.b.0 is a object"),
        ({"a": {("x",): 1}}, "keys must be strings"),
        ({"c": np.zeros(2, complex)}, "complex128"),
        ([1, 2], "needs a dict or a Module"),
    ):
        with pytest.raises(TypeError, match=words):
            hm.save(wrong, path)
    assert path.read_bytes() == before
