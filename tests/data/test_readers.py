"""Data sets of files: what they read, in this process and in workers, and what they say of files that do not fit."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml.data import CSVDataset, DataLoader, ImageFolder, NumpyDataset, ParquetDataset, RandomSampler
from hybridml.data import transforms as T
from tests.support.loaders import lists

TABLE = "size,price,kind,flag\n1,0.5,a,1e3\n2,,b,2\n-3,2.5,,3\n"


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "table.csv"
    path.write_text(TABLE, encoding="utf-8")
    return path


def test_numpy_files(tmp_path: Path) -> None:
    x, y = np.arange(24, dtype=np.float32).reshape(8, 3), np.arange(8)
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", y)
    np.savez(tmp_path / "both.npz", x=x, y=y)
    data = NumpyDataset(tmp_path / "x.npy", tmp_path / "y.npy")
    assert isinstance(data.arrays[0], np.memmap) and data[-1][1] == 7 and data[1][0].tolist() == [3, 4, 5]
    assert len(pickle.dumps(data)) < 600 and pickle.loads(pickle.dumps(data))[3][1] == 3
    named = NumpyDataset(tmp_path / "both.npz")
    for workers in (0, 2):
        got = lists(DataLoader(data, 3, shuffle=True, generator=0, num_workers=workers))
        assert sorted(k for _, labels in got for k in labels) == list(range(8))
        assert all(rows == x[labels].tolist() for rows, labels in got)
        assert [y for batch in lists(DataLoader(named, 5, num_workers=workers)) for y in batch["y"]] == list(range(8))
    with pytest.raises(IndexError, match="row 8 is outside of 8"):
        data[8]
    np.save(tmp_path / "z.npy", np.arange(5))
    with pytest.raises(hm.ArgumentError, match="first axes must be equal"):
        NumpyDataset(tmp_path / "x.npy", tmp_path / "z.npy")
    with pytest.raises(hm.ArgumentError, match=r"takes \.npy files"):
        NumpyDataset(tmp_path / "x.csv")


def test_columns_of_csv(table: Path, tmp_path: Path) -> None:
    found = hm.data.read_csv(table)
    assert [name + column.dtype.kind for name, column in found.items()] == ["sizei", "pricef", "kindU", "flagf"]
    assert found["size"].tolist() == [1, 2, -3] and np.isnan(found["price"][1])
    assert found["kind"].tolist() == ["a", "b", ""]
    other = tmp_path / "other.csv"
    other.write_text('1;"a;b";1\n99999999999999999999;c;1_0\n', encoding="utf-8")
    plain = hm.data.read_csv(other, delimiter=";", header=False)
    assert plain["0"].tolist() == [1.0, 1e20] and plain["1"].tolist() == ["a;b", "c"] and plain["2"][1] == "1_0"
    other.write_text("", encoding="utf-8")
    assert hm.data.read_csv(other) == {}
    other.write_text("a,b\n", encoding="utf-8")
    assert len(CSVDataset(other)) == 0
    other.write_text("a,b\ntrue,true\nFALSE,\n", encoding="utf-8")
    assert [column.tolist() for column in hm.data.read_csv(other).values()] == [[True, False], ["true", ""]]
    assert CSVDataset(other, columns=["a"], target="b").batch(np.arange(2))[0].tolist() == [[1], [0]]
    assert repr(CSVDataset(other, target="b")) == "CSVDataset(2 rows of ['a'], target='b')"
    other.write_text("a,b\n1,2\n1,2,3\n", encoding="utf-8")
    with pytest.raises(hm.ArgumentError, match=r"line 3 has 3 fields, not 2"):
        hm.data.read_csv(other)
    other.write_text("a,a\n1,2\n", encoding="utf-8")
    with pytest.raises(hm.ArgumentError, match="two columns of one name"):
        hm.data.read_csv(other)
    other.write_text("a,b\n1,2\n", encoding="utf-8-sig")
    assert list(hm.data.read_csv(other)) == ["a", "b"]
    with pytest.raises(hm.ArgumentError, match=r"has no column \['weight'\]"):
        hm.data.read_csv(table, columns=["weight"])


def test_rows_of_csv(table: Path) -> None:
    data = CSVDataset(table)
    assert data[0] == {"size": 1, "price": 0.5, "kind": "a", "flag": 1000.0} and data[-1]["size"] == -3
    pairs = CSVDataset(table, columns=["size", "flag"], target="kind")
    assert pairs[0][0].tolist() == [1, 1000] and pairs[0][1] == "a"
    for workers in (0, 1):
        (numbers, kinds), *_ = lists(DataLoader(pairs, 2, num_workers=workers))
        assert numbers == [[1, 1000], [2, 2]] and kinds == ["a", "b"]
        assert lists(DataLoader(data, 3, num_workers=workers))[0]["kind"] == ["a", "b", ""]
    collated = hm.data.default_collate([pairs[k] for k in range(3)])
    for name, column in data.batch(np.arange(2)).items():
        samples = hm.data.default_collate([data[k][name] for k in range(2)])
        assert repr(column) == repr(samples)  # the dtype too
    with pytest.raises(IndexError, match="row 3 is outside of 3"):
        data.batch(np.array([0, 3]))
    assert collated[0].tolist() == pairs.batch(np.arange(3))[0].tolist() and collated[0].dtype == hm.float32
    with pytest.raises(hm.ArgumentError, match=r"columns \['kind'\] are no numbers"):
        CSVDataset(table, target="size")[0]
    with pytest.raises(hm.ArgumentError, match="no column"):
        CSVDataset(table, target="weight")
    with pytest.raises(IndexError):
        data[3]


@pytest.fixture
def pets(tmp_path: Path) -> Path:
    image = pytest.importorskip("PIL.Image")
    for number, kind in enumerate(("cat", "dog")):
        (tmp_path / kind / "more").mkdir(parents=True)
        for k in range(3):
            pixels = np.full((10, 12, 3), 100 * number + k, np.uint8)
            image.fromarray(pixels).save(tmp_path / kind / ("more" if k == 2 else "") / f"{k}.png")
        (tmp_path / kind / "notes.txt").write_text("no image")
    return tmp_path


def test_folders_of_images(pets: Path) -> None:
    data = ImageFolder(pets, T.Compose([T.CenterCrop(8), T.ToTensor()]), target_transform=lambda k: k + 10)
    assert data.classes == ["cat", "dog"] == list(data.class_to_idx) and data.targets == [0] * 3 + [1] * 3
    assert len(data) == 6 and data[4][0].shape == (3, 8, 8) and data[4][1] == 11
    for workers in (0, 2):
        images, labels = next(iter(DataLoader(data, 6, num_workers=workers)))
        assert (images[:, 0, 0, 0] * 255).tolist() == pytest.approx([0, 1, 2, 100, 101, 102])
        assert labels.tolist() == [10] * 3 + [11] * 3
    assert ImageFolder(pets)[0][0].size == (12, 10)
    assert ImageFolder(pets, loader=hm.data.read_image)[5][0].shape == (3, 10, 12)
    assert hm.data.read_image(pets / "dog" / "1.png", "L").tolist()[0][0] == [101] * 12
    (pets / "empty").mkdir()
    with pytest.raises(hm.ArgumentError, match=r"no images of \['empty'\]"):
        ImageFolder(pets)
    with pytest.raises(hm.ArgumentError, match="no images in folders"):
        ImageFolder(pets / "empty")


def test_parquet(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    columns: Any = {"x": np.arange(10.0), "v": [[k, k + 0.5] for k in range(10)], "y": list(range(10))}
    columns["kind"] = [f"k{k}" for k in range(10)]
    path = tmp_path / "table.parquet"
    pq.write_table(pa.table(columns), path, row_group_size=4)
    found = hm.data.read_parquet(path)
    assert found["v"].shape == (10, 2) and found["kind"].dtype.kind == "U" and found["y"].tolist() == columns["y"]
    assert list(hm.data.read_parquet(path, columns=["y"])) == ["y"]
    data = ParquetDataset(path)
    assert data[9]["kind"] == "k9" and data[-10]["v"].tolist() == [0, 0.5] and len(data) == 10
    pairs = ParquetDataset(path, columns=["x", "v"], target="y")
    assert pairs[7][0].tolist() == [7, 7, 7.5] and len(pickle.dumps(pairs)) < 600
    for workers in (0, 2):
        loader = DataLoader(pairs, 4, shuffle=True, generator=3, num_workers=workers)
        got = lists(loader)
        assert [k for _, labels in got for k in labels] == list(RandomSampler(range(10), generator=3))
        assert all(rows == [[k, k, k + 0.5] for k in labels] for rows, labels in got)
    with pytest.raises(hm.ArgumentError, match="no column"):
        ParquetDataset(path, columns=["z"])


@pytest.mark.parametrize(
    ("module", "use", "words"),
    [
        ("PIL.Image", lambda path: hm.data.read_image(path), "reading images needs pillow: `pip install pillow`"),
        ("pyarrow.parquet", lambda path: ParquetDataset(path), "reading Parquet files needs pyarrow"),
        ("pyarrow.parquet", lambda path: hm.data.read_parquet(path), "`pip install pyarrow`"),
    ],
)
def test_what_is_not_installed_is_named(table: Path, monkeypatch: Any, module: str, use: Any, words: str) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=words):
        use(table)
