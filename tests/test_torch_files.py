"""Files of `torch.save` (golden/torch/make.py wrote them, by PyTorch 2): values, and what is refused in them."""

from __future__ import annotations

import io
import os
import pickle
import pickletools
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml import nn
from hybridml.io import CheckpointError, torch_files

FILES = Path(__file__).parent / "golden" / "torch"
BOTH = pytest.mark.parametrize("name", ["zipped", "before_1_6"])


@BOTH
def test_values_and_dtypes(name: str) -> None:
    found: Any = hm.load(FILES / f"{name}.pt")
    assert found["epoch"] == 3 and found["lr"] == [0.1, (1, None, "x")] and found["size"] == (1, 2)
    assert found["base"].tolist() == [[0, 1, 2], [3, 4, 5]] and found["empty"].shape == (0, 3)
    assert found["column"].tolist() == [1, 4] and found["turned"].tolist() == [[0, 3], [1, 4], [2, 5]]
    assert isinstance(found["parameter"], nn.Parameter) and found["parameter"].requires_grad
    for dtype, tensor in found["kinds"].items():
        assert tensor.dtype.name == dtype and tensor.tolist() == [1, 0, int(dtype != "bool") + 1]
    assert type(found) is dict and type(found["model"]) is dict


@BOTH
def test_tensors_share_memory_as_they_did(name: str) -> None:
    found: Any = hm.load(FILES / f"{name}.pt")
    found["base"][1, 1] = 7.0
    assert found["column"].tolist() == [1, 7] and found["turned"].tolist()[1] == [1, 7]


@BOTH
def test_models_and_optimizers_go_on(name: str) -> None:
    found: Any = hm.load(FILES / f"{name}.pt")
    model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    optimizer = hm.optim.Adam(model.parameters())
    model.load_state_dict(found["model"])
    optimizer.load_state_dict(found["optimizer"])
    assert optimizer.param_groups[0]["lr"] == 0.01
    model(hm.ones((4, 3))).sum().backward()
    optimizer.step()
    assert optimizer.state_dict()["state"][0]["step"] == 2


def test_dtypes_without_a_storage_of_their_own() -> None:
    found = hm.load(FILES / "uint16.pt")["u"]
    assert found.dtype.name == "uint16" and found.tolist() == [1, 2]


def test_files_go_to_the_device_that_is_asked_for() -> None:
    assert hm.load(FILES / "zipped.pt", map_location="cpu")["base"].device == hm.device("cpu")


def test_modules_are_refused_by_name() -> None:
    with pytest.raises(CheckpointError, match=r"module\.pt .*torch\.nn\.modules\.container\.Sequential.*state_dict"):
        hm.load(FILES / "module.pt")


def _archive(data: bytes, path: Path, **members: bytes) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in {"data.pkl": data, **members}.items():
            archive.writestr(f"archive/{name}", content)
    return path


class _Calls:
    def __init__(self, fn: Callable[..., Any], *args: Any) -> None:
        self.made = fn, args

    def __reduce__(self) -> Any:
        return self.made


@pytest.mark.parametrize("fn", [os.mkdir, eval, exec, getattr, np.load, hm.load, torch_files.read])
def test_nothing_is_called(fn: Any, tmp_path: Path) -> None:
    target = tmp_path / "made"
    data = pickle.dumps(_Calls(fn, str(target)), protocol=2)
    with pytest.raises(CheckpointError, match="which only that code can make"):
        hm.load(_archive(data, tmp_path / "evil.pt"))
    assert not target.exists()


def test_no_attribute_is_set(tmp_path: Path) -> None:
    before = torch_files._tensor.__defaults__, dict(torch_files._tensor.__dict__)
    for state in (b"}X\x01\x00\x00\x00aK\x01s", b"N}X\x0c\x00\x00\x00__defaults__)s\x86"):
        data = b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n" + state + b"b."
        pickletools.dis(data, io.StringIO())
        with pytest.raises(CheckpointError, match="sets attributes"):
            hm.load(_archive(data, tmp_path / "evil.pt"))
    assert before == (torch_files._tensor.__defaults__, torch_files._tensor.__dict__)


@pytest.mark.parametrize(
    ("offset", "size", "stride"),
    [
        (0, (5,), (1,)), (1, (4,), (1,)), (0, (2, 2), (3, 1)), (-1, (1,), (1,)), (0, (2,), (-1,)), (0, (2,), (1, 1)),
        (0, (1 << 62,), (1 << 62,)),
    ],
)  # fmt: skip
def test_tensors_stay_inside_their_storage(offset: int, size: Any, stride: Any) -> None:
    with pytest.raises((torch_files._Refused, ValueError)):
        torch_files._tensor(np.zeros(4, "f4"), offset, size, stride, False)


@BOTH
def test_no_damage_is_more_than_an_error(name: str, tmp_path: Path) -> None:
    """Cut or changed files are errors that name the file, or other values: files before 1.6 have no checksums."""
    data, rng = (FILES / f"{name}.pt").read_bytes(), np.random.default_rng(0)
    path = tmp_path / "damaged.pt"
    refused = 0
    for k in range(400):
        spoiled = bytearray(data)
        if k % 4:
            spoiled[rng.integers(len(data))] ^= 1 << rng.integers(8)
        else:
            del spoiled[rng.integers(1, len(data)) :]
        path.write_bytes(spoiled)
        try:
            hm.load(path)
        except CheckpointError as error:
            refused += "damaged.pt" in str(error)
    assert refused > 100


def test_other_archives_and_pickles_are_refused(tmp_path: Path) -> None:
    for content, words in (
        (pickle.dumps({"a": 1}), "none of torch.save's"),
        (b"PK\x03\x04" + b"\0" * 100, "damaged, cut short, or of another format"),
    ):
        path = tmp_path / "other.pt"
        path.write_bytes(content)
        with pytest.raises(CheckpointError, match=words):
            hm.load(path)
    with pytest.raises(CheckpointError, match="TorchScript"):
        hm.load(_archive(pickle.dumps(1, protocol=2), tmp_path / "script.pt", **{"constants.pkl": b""}))
    with zipfile.ZipFile(tmp_path / "small.pt", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", pickle.dumps("x" * 1000, protocol=2))
    with pytest.raises(CheckpointError, match="compressed"):
        hm.load(tmp_path / "small.pt")
    deep: Any = None
    for _ in range(50):
        deep = [deep, deep]  # two to the 50 lists, if each were read anew
    assert len(hm.load(_archive(pickle.dumps(deep, protocol=2), tmp_path / "deep.pt"))) == 2
