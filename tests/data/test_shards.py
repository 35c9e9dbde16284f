"""Streams of files: what they read, who reads it, where they go on, and what they say of damage."""

from __future__ import annotations

import gzip
import io
import json
import sys
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hybridml as hm
from hybridml import distributed as dist
from hybridml.data import (
    CSVShards,
    DataLoader,
    NumpyDataset,
    NumpyShards,
    ParquetDataset,
    ParquetShards,
    ShardError,
    TarDataset,
)


def write_tar(path: Path, files: list[tuple[str, bytes]], mode: Any = "w", kind: int = tarfile.PAX_FORMAT) -> None:
    with tarfile.open(path, mode, format=kind) as archive:
        for name, content in files:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


def write_tar_of(path: Path, numbers: list[int]) -> None:
    files = [(f"{k}.{kind}", f"{k}" * n) for k in numbers for kind, n in (("txt", 1), ("seg.PNG", 700))]
    write_tar(path, [(name, text.encode()) for name, text in files])


def write_csv(path: Path, numbers: list[int]) -> None:
    rows = [f'{k},"a,\nb",{k}.5\n' for k in numbers]
    path.write_text("id,text,x\n" + "\n".join(rows), encoding="utf-8-sig")


def write_npy(path: Path, numbers: list[int]) -> None:
    np.save(path, np.array(numbers, np.int32))


def write_npz(path: Path, numbers: list[int]) -> None:
    np.savez(path, id=np.array(numbers, np.int32), x=np.zeros((len(numbers), 2)))


def write_parquet(path: Path, numbers: list[int]) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    pq.write_table(
        pa.table({"id": pa.array(numbers, pa.int64()), "x": [[k, k + 1] for k in numbers]}), path, row_group_size=2
    )


# By ending: how a file of some numbers is written, the stream of such files, the number of a sample.
FORMATS: dict[str, tuple[Callable[[Path, list[int]], None], Any, Callable[[Any], int]]] = {
    "tar": (write_tar_of, TarDataset, lambda sample: int(sample["txt"])),
    "csv": (write_csv, lambda *a, **k: CSVShards(*a, dtypes={"id": int}, **k), lambda sample: sample["id"]),
    "npy": (write_npy, NumpyShards, int),
    "npz": (write_npz, NumpyShards, lambda sample: int(sample["id"])),
    "parquet": (write_parquet, ParquetShards, lambda sample: int(sample["id"])),
}


def shards(folder: Path, kind: str, sizes: list[int], **options: Any) -> Any:
    write, made, number = FORMATS[kind]
    for shard, size in enumerate(sizes):
        write(folder / f"shard-{shard}.{kind}", [100 * shard + k for k in range(size)])
    return made(str(folder / f"shard-*.{kind}"), **options).map(number)


def numbers(sizes: list[int]) -> list[int]:
    return [100 * shard + k for shard, size in enumerate(sizes) for k in range(size)]


@pytest.mark.parametrize("kind", FORMATS)
@settings(max_examples=12, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 5), min_size=1, max_size=5),
    replicas=st.integers(1, 5),
    cycle=st.integers(1, 3),
    buffer=st.integers(1, 6),
)
def test_each_sample_is_one_readers_who_goes_on_anywhere(
    kind: str, sizes: list[int], replicas: int, cycle: int, buffer: int
) -> None:
    """Any number of processes resumes any number of shards behind every sample, from states that went through JSON."""
    with tempfile.TemporaryDirectory() as text:
        shards(Path(text), kind, sizes)
        _, made, number = FORMATS[kind]
        found = []
        for rank in range(replicas):

            def make(rank: int = rank) -> Any:
                files = made(f"{text}/shard-*.{kind}", num_replicas=replicas, rank=rank)
                return files.interleave(cycle).map(number).shuffle(buffer, seed=0)

            stream, samples, states = make(), [], []
            for sample in stream:
                samples.append(sample)
                states.append(json.loads(json.dumps(stream.state_dict())))
            for count, state in enumerate(states):
                resumed = make()
                resumed.load_state_dict(state)
                assert list(resumed) == samples[count + 1 :]
            found += samples
        assert sorted(found) == numbers(sizes)


@pytest.mark.parametrize("kind", FORMATS)
def test_files_in_order(tmp_path: Path, kind: str) -> None:
    assert list(shards(tmp_path, kind, [3, 1, 2])) == numbers([3, 1, 2])
    _, made, number = FORMATS[kind]
    listed = made([tmp_path / f"shard-2.{kind}", tmp_path / f"shard-0.{kind}"])
    assert list(listed.map(number)) == [200, 201, 0, 1, 2]
    assert list(made(tmp_path / f"shard-1.{kind}").map(number)) == [100]
    assert "2 shards, rank=0 of 1" in repr(listed)


@pytest.mark.parametrize(("processes", "workers"), [(2, 0), (3, 2)])
@pytest.mark.parametrize("sizes", [[4], [4, 3], [2, 3, 1, 4, 2, 3, 2]])
def test_processes_and_workers_divide_the_samples(
    tmp_path: Path, sizes: list[int], processes: int, workers: int
) -> None:
    shards(tmp_path, "tar", sizes)
    number = FORMATS["tar"][2]

    def make() -> DataLoader:
        return DataLoader(TarDataset(str(tmp_path / "*.tar")).map(number), None, num_workers=workers)

    def read() -> list[int]:
        loader = make()
        whole = list(loader)
        batches = iter(loader)
        resumed = make()
        if next(batches, None) is not None:
            resumed.load_state_dict(loader.state_dict())
            assert list(resumed) == list(batches)
        return whole

    parts = dist.run_threads(processes, read)
    assert sorted(sample for part in parts for sample in part) == numbers(sizes)
    if len(sizes) >= processes * max(1, workers):  # whole shards
        owners = [{sample // 100 for sample in part} for part in parts]
        assert sum(map(len, owners)) == len(sizes)


# --- tar archives ----------------------------------------------------------------------------------------------------


def test_samples_of_archives(tmp_path: Path) -> None:
    long = "folder." + "x" * 120 + "/a"
    files = [("b/1.jpg", b"J"), ("b/1.cls.txt", b""), ("c/1.jpg", b"K" * 600), (f"{long}.txt", b"L"), ("é.txt", b"M")]
    expected = [
        {"__key__": "b/1", "jpg": b"J", "cls.txt": b""},
        {"__key__": "c/1", "jpg": b"K" * 600},
        {"__key__": long, "txt": b"L"},
        {"__key__": "é", "txt": b"M"},
    ]
    modes = [("w", tarfile.PAX_FORMAT), ("w", tarfile.GNU_FORMAT), ("w:gz", tarfile.PAX_FORMAT)]
    for number, (mode, kind) in enumerate(modes):
        path = tmp_path / f"{number}.tar"
        write_tar(path, files, mode, kind)
        stream = TarDataset(path)
        assert list(stream) == [{**sample, "__url__": str(path)} for sample in expected]
        run = iter(stream)
        next(run), next(run)
        resumed = TarDataset(path)
        resumed.load_state_dict(stream.state_dict())
        assert [sample["__key__"] for sample in resumed] == [long, "é"]
    with tarfile.open(tmp_path / "folders.tar", "w") as archive:
        (tmp_path / "d").mkdir()
        (tmp_path / "d" / "1.txt").write_text("a")
        archive.add(tmp_path / "d", "d")
    assert [sample["txt"] for sample in TarDataset(tmp_path / "folders.tar")] == [b"a"]
    write_tar(tmp_path / "empty.tar", [])
    assert list(TarDataset(tmp_path / "empty.tar")) == []


@pytest.mark.parametrize("mode", ["w", "w:gz"])
def test_an_archive_that_is_cut_anywhere_is_an_error(tmp_path: Path, mode: str) -> None:
    """Each sample is given, or an error is raised: never the end without the rest."""
    path, whole = tmp_path / "cut.tar", tmp_path / "whole.tar"
    write_tar(whole, [(f"{k}.txt", bytes([k]) * 700) for k in range(3)], mode)
    data, expected = whole.read_bytes(), [bytes([k]) * 700 for k in range(3)]
    behind = 3 * (512 + 1024) + 512 if mode == "w" else len(data)  # whatever is there is padding
    for size in [*range(0, behind, 1 if mode == "w:gz" else 61), behind - 1]:
        path.write_bytes(data[:size])
        samples = []
        with pytest.raises(
            ShardError, match=r"TarDataset: .*cut\.tar, (at its beginning|at|behind|member).*write it again"
        ):
            samples.extend(sample["txt"] for sample in TarDataset(path))
        assert samples == expected[: len(samples)]
    path.write_bytes(data)
    assert [sample["txt"] for sample in TarDataset(path)] == expected


def test_damaged_archives_name_the_member_and_the_byte(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    write_tar(path, [("1.txt", b"a" * 600), ("2.txt", b"b"), ("3.txt", b"c")])
    data = path.read_bytes()
    path.write_bytes(data[:1536] + b"#" + data[1537:])
    with pytest.raises(ShardError, match=r"a\.tar, behind member '1\.txt', at byte 1536: bad checksum"):
        list(TarDataset(path))
    path.write_bytes(data[:1000])
    with pytest.raises(ShardError, match=r"a\.tar, behind member '1\.txt', at byte 1536: the file has 1000 bytes"):
        list(TarDataset(path))
    path.write_bytes(data + data)
    with pytest.raises(ShardError, match="there is more behind the mark of the archive's end"):
        list(TarDataset(path))
    path.write_bytes(b"no archive")
    with pytest.raises(ShardError, match="at its beginning"):
        list(TarDataset(path))
    write_tar(path, [("1.txt", b"a"), ("README", b"b")])
    with pytest.raises(ShardError, match=r"member 'README' at byte 1024 has no extension"):
        list(TarDataset(path))
    for hidden in (".hidden.txt", "d/._1.txt", ".txt"):  # macOS writes the second
        write_tar(path, [("1.txt", b"a"), (hidden, b"b")])
        with pytest.raises(ShardError, match=rf"member '{hidden}' at byte 1024 has no name before its first dot"):
            list(TarDataset(path))
    write_tar(path, [("1.txt", b"a"), ("1.TXT", b"b")])
    with pytest.raises(ShardError, match=r"member '1\.TXT' at byte 1024 is the second one with extension 'txt'"):
        list(TarDataset(path))
    with tarfile.open(path, "w") as archive:
        link = tarfile.TarInfo("1.txt")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    with pytest.raises(ShardError, match=r"member '1\.txt' at byte 0 is a link or a device"):
        list(TarDataset(path))


def test_an_error_in_a_worker_names_the_shard(tmp_path: Path) -> None:
    write_tar(tmp_path / "0.tar", [("1.txt", b"a" * 600)])
    (tmp_path / "1.tar").write_bytes((tmp_path / "0.tar").read_bytes()[:800])
    with pytest.raises(ShardError, match=r"1\.tar, behind member '1\.txt', at byte 1536: the file has 800"):
        list(DataLoader(TarDataset(str(tmp_path / "*.tar")), 1, num_workers=2))


# --- CSV, NumPy and Parquet ------------------------------------------------------------------------------------------


def test_columns_have_the_types_of_the_first_rows_or_those_asked_for(tmp_path: Path) -> None:
    (tmp_path / "0.csv").write_text('a,b,c,d\n1,0.5,x,true\n\n2,,"y\n,z",false\n')
    (tmp_path / "1.csv").write_text("a,b,c,d\n3,1e3,w,TRUE\n")
    rows = list(CSVShards(str(tmp_path / "*.csv")))
    assert [repr(list(row.values())) for row in rows] == [
        "[1, 0.5, 'x', True]", "[2, nan, 'y\\n,z', False]", "[3, 1000.0, 'w', True]",
    ]  # fmt: skip
    assert next(iter(CSVShards(tmp_path / "1.csv", ["c", "a"], {"a": float}))) == {"c": "w", "a": 3.0}
    (tmp_path / "2.csv").write_text("1;x\n2;y\n")
    assert list(CSVShards(tmp_path / "2.csv", delimiter=";", header=False)) == [{"0": 1, "1": "x"}, {"0": 2, "1": "y"}]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a,b\n1,2\n3\n", r"1\.csv, line 3 at byte 8 has 1 fields, not 2"),
        ('a,b\n1,"2\n', r"1\.csv, line 2 at byte 4: unexpected end of data"),
        ("a,b\n1,x\n", r"1\.csv, line 2 at byte 4 has 'x' in column 'b', no int; .* dtypes={'b': str}"),
        ("a,b\n1,1_0\n", "has '1_0' in column 'b', no int"),
        ("a,c\n1,2\n", r"1\.csv has other columns than .*0\.csv: it has \['a', 'c'\], and \['a', 'b'\] are read"),
        ("a,b,c\n1,2,3\n", "has other columns"),
        ("a,b,a\n1,2,3\n", "has other columns"),
        ("\n\n", r"has other columns than .*0\.csv: it has \[\]"),
        ("", r"1\.csv, line 1 at byte 0: the file has 0 bytes"),
    ],
)
def test_damaged_csv_names_the_line_and_the_byte(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "0.csv").write_text("a,b\n1,2\n")
    (tmp_path / "1.csv").write_text(text)
    with pytest.raises(ShardError, match=words):
        list(CSVShards(str(tmp_path / "*.csv")))


def test_columns_are_found_by_name(tmp_path: Path) -> None:
    """Also where a run goes on: in the order of each file, without those that are not asked for."""
    for number, text in enumerate(("a,b,c\n1,x,2\n", "b,c,a\ny,4,3\nz,6,5\n", "a,d,b\n7,8,w\n")):
        (tmp_path / f"{number}.csv").write_text(text)
    stream = CSVShards([tmp_path / "0.csv", tmp_path / "1.csv"])
    run = iter(stream)
    assert [next(run), next(run)] == [{"a": 1, "b": "x", "c": 2}, {"a": 3, "b": "y", "c": 4}]
    resumed = CSVShards([tmp_path / "0.csv", tmp_path / "1.csv"])
    resumed.load_state_dict(stream.state_dict())
    assert list(resumed) == list(run) == [{"a": 5, "b": "z", "c": 6}]
    rows = CSVShards(str(tmp_path / "*.csv"), columns=["b", "a"])
    assert [list(row.values()) for row in rows] == [["x", 1], ["y", 3], ["z", 5], ["w", 7]]
    (tmp_path / "1.csv").write_text("c,a\n1,2\n")
    with pytest.raises(ShardError, match=r"1\.csv has other columns than .*0\.csv: .* \['b', 'a'\] are read"):
        list(CSVShards(str(tmp_path / "*.csv"), columns=["b", "a"]))


def test_what_is_no_damage_is_not_called_so(tmp_path: Path) -> None:
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(b"a,b\n1,2\n"))
    with pytest.raises(hm.ArgumentError, match=r"CSVShards: .*a\.csv\.gz is compressed, and text is read; unpack it"):
        CSVShards(tmp_path / "a.csv.gz")
    for made in (TarDataset, NumpyShards, ParquetShards, CSVShards):
        with pytest.raises(
            hm.ArgumentError, match=rf"{made.__name__}: {tmp_path} is a folder; give files, as .*train-"
        ):
            made(tmp_path)


def test_errors_of_functions_name_the_sample(tmp_path: Path) -> None:
    path = tmp_path / "0.tar"
    write_tar_of(path, [1, 2])
    for workers in (0, 1):
        with pytest.raises(KeyError, match="png") as error:
            list(DataLoader(TarDataset(path).map(lambda sample: sample["png"]).map(str), num_workers=workers))
        assert f"map: of the sample '1' of {path}" in error.value.__notes__
    with pytest.raises(ZeroDivisionError) as plain:
        list(hm.data.ChainDataset([[0, {}]]).map(lambda k: 1 / k))
    assert not hasattr(plain.value, "__notes__")


def test_bytes_that_are_no_text_name_the_line(tmp_path: Path) -> None:
    (tmp_path / "0.csv").write_bytes(b"a\n1\n" + b"2\n" * 1500 + b"\xff\n")
    with pytest.raises(ShardError, match=r"line 1503 at byte 3004: 'utf-8' codec can't decode"):
        list(CSVShards(tmp_path / "0.csv"))


@pytest.mark.parametrize(
    ("first", "later", "advice"),
    [("1", "1.5", "float"), ("1", "", "float"), ("1", "x", "str"), ("0.5", "x", "str"), ("true", "1", "str")],
)
def test_the_type_that_is_advised_reads_the_column(tmp_path: Path, first: str, later: str, advice: str) -> None:
    for number, field in enumerate((first, later)):
        (tmp_path / f"{number}.csv").write_text(f"a,b\n{field},0\n")
    with pytest.raises(ShardError, match=rf"dtypes={{'a': {advice}}}"):
        list(CSVShards(str(tmp_path / "*.csv")))
    kind = {"float": float, "str": str}[advice]
    given = {"1": int, "0.5": float, "true": bool}[first]
    with pytest.raises(ShardError, match=rf"no {given.__name__}; .*dtypes={{'a': {advice}}}"):
        list(CSVShards(str(tmp_path / "*.csv"), dtypes={"a": given}))
    assert len(list(CSVShards(str(tmp_path / "*.csv"), dtypes={"a": kind}))) == 2


def test_files_that_have_no_rows_of_numbers_are_not_called_damaged(tmp_path: Path) -> None:
    np.save(tmp_path / "scalar.npy", np.float32(3))
    np.save(tmp_path / "objects.npy", np.array([{}, None], dtype=object))
    np.savez(tmp_path / "objects.npz", a=np.array([{}, None], dtype=object))
    np.savez(tmp_path / "uneven.npz", a=np.zeros(2), b=np.zeros(3))
    for name, words in (
        ("scalar.npy", r"scalar\.npy'?: \(\)"),
        ("objects.npy", "has Python objects"),
        ("objects.npz", "has Python objects"),
        ("uneven.npz", r"a'?: \(2,\), '?b'?: \(3,\)"),
    ):
        with pytest.raises(hm.ArgumentError, match=rf"NumpyShards: .*{name}:? .*{words}") as error:
            list(NumpyShards(tmp_path / name))
        assert "damaged" not in str(error.value) and "NumpyDataset" not in str(error.value)
        with pytest.raises(hm.ArgumentError, match=f"NumpyDataset: .*{words}"):
            NumpyDataset(tmp_path / name)


@pytest.mark.parametrize("kind", ["tar", "csv", "npy", "npz", "parquet"])
def test_a_place_behind_the_end_of_a_file_is_an_error(tmp_path: Path, kind: str) -> None:
    stream = shards(tmp_path, kind, [20])
    run = iter(stream)
    for _ in range(14):
        next(run)
    state = stream.state_dict()
    shorter = shards(tmp_path, kind, [20])
    shorter.load_state_dict(state)
    shards(tmp_path, kind, [4])
    with pytest.raises(ShardError, match=rf"shard-0\.{kind}, .* the file has "):
        list(shorter)


@pytest.mark.parametrize("kind", ["npy", "npz", "parquet"])
def test_damaged_files_of_rows_name_the_file(tmp_path: Path, kind: str) -> None:
    shards(tmp_path, kind, [50, 50])
    path = tmp_path / f"shard-1.{kind}"
    data = path.read_bytes()
    for size in (0, 10, len(data) // 2, len(data) - 1):
        path.write_bytes(data[:size])
        with pytest.raises(ShardError, match=rf"shard-1\.{kind}, at its beginning: .*write it again"):
            list(FORMATS[kind][1](str(tmp_path / f"*.{kind}")))


def test_damage_inside_of_parquet_names_the_row(tmp_path: Path) -> None:
    shards(tmp_path, "parquet", [50])
    path = tmp_path / "shard-0.parquet"
    data = bytearray(path.read_bytes())
    data[4 : len(data) // 4] = bytes(len(data) // 4 - 4)
    path.write_bytes(data)
    with pytest.raises(ShardError, match=r"shard-0\.parquet, row 0: "):
        list(ParquetShards(path))


def test_headers_are_read_again_where_another_thread_has_disturbed_the_parser(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream, load, errors = shards(tmp_path, "npy", [2]), np.load, [SystemError("recursion depth mismatch")] * 2

    def disturbed(*args: Any, **options: Any) -> Any:
        if errors:
            raise errors.pop()
        return load(*args, **options)

    monkeypatch.setattr(np, "load", disturbed)
    assert list(stream) == [0, 1] and not errors
    errors += [SystemError("recursion depth mismatch")] * 10_000
    with pytest.raises(SystemError, match="recursion depth mismatch"):  # not RecursionError
        list(stream)
    assert len(errors) >= 9_900


def test_columns_of_parquet(tmp_path: Path) -> None:
    shards(tmp_path, "parquet", [3])
    x, y = next(iter(ParquetShards(tmp_path / "shard-0.parquet", ["x"], "id")))
    assert x.tolist() == [0, 1] and y == 0
    with pytest.raises(hm.ArgumentError, match=r"ParquetShards: .*0\.parquet has no column \['z'\]"):
        list(ParquetShards(tmp_path / "shard-0.parquet", ["z"]))


# Columns of two row groups, each of two rows, whose samples have these values.
COLUMNS: dict[str, list[Any]] = {
    "text": ["a", "b", None, "d"],
    "bytes": [b"\0a", b"b\0", None, b""],
    "struct": [{"bytes": b"a", "path": "x"}, {"bytes": None, "path": "y"}, None, {"bytes": b"", "path": ""}],
    "lists": [[1, 2], [3, 4], None, [5]],
    "lengths": [[1, 2], [3, 4], [5], [6]],
    "words": [["a"], ["b", "c"], None, []],
    "floats": [0.5, 1.5, 2.5, 3.5],
    "bools": [True, False, True, True],
}


@pytest.mark.parametrize("name", COLUMNS)
def test_values_of_parquet_that_are_no_numbers_are_pythons(tmp_path: Path, name: str) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    values, path = COLUMNS[name], tmp_path / "0.parquet"
    pq.write_table(pa.table({name: values, "t": range(4)}), path, row_group_size=2)
    data, plain = ParquetDataset(path), lambda value: value.tolist() if isinstance(value, np.ndarray) else value
    for rows in (list(ParquetShards(path)), [data[k] for k in range(4)]):
        assert [plain(row[name]) for row in rows] == values
        assert all(row[name] is None for row, value in zip(rows, values, strict=True) if value is None)
    whole, parts = hm.data.read_parquet(path)[name], data.batch(np.array([3, 0, 2, 1]))[name]
    assert [plain(value) for value in whole.tolist()] == values
    assert [plain(parts[k]) for k in (1, 3, 2, 0)] == values if isinstance(parts, list) else len(parts) == 4


@pytest.mark.parametrize("values", [[1, 2, 2**53 + 1, None], [True, False, None, True], [[1], [2], [3], [None]]])
def test_null_among_whole_numbers_names_the_column(tmp_path: Path, values: list[Any]) -> None:
    """Whose type would depend on the row group, and whose values would not be those of the file."""
    pa, pq, pc = map(pytest.importorskip, ("pyarrow", "pyarrow.parquet", "pyarrow.compute"))
    path, table = tmp_path / "0.parquet", pa.table({"id": values, "t": [0, 1, 2, 3]})
    pq.write_table(table, path, row_group_size=2)
    for name, use in (
        ("ParquetShards", lambda: list(ParquetShards(path))),
        ("ParquetDataset", lambda: ParquetDataset(path)[3]),
        ("ParquetDataset", lambda: ParquetDataset(path, ["t"], "id").batch(np.arange(4))),
        ("read_parquet", lambda: hm.data.read_parquet(path)),
    ):
        words = rf"{name}: .*0\.parquet has null in column 'id' of (int64|bool); write it filled"
        with pytest.raises(hm.ArgumentError, match=words):
            use()
    assert [row["t"] for row in ParquetShards(path, columns=["t"])] == [0, 1, 2, 3]
    if 2**53 + 1 in values:  # both ways that the error says
        for written in (
            pc.fill_null(table["id"], 0),
            pc.if_else(pc.less(table["id"], 9), table["id"], None).cast("float64"),
        ):
            pq.write_table(pa.table({"id": written}), path, row_group_size=2)
            types = {type(row["id"]) for row in ParquetShards(path)}
            assert len(types) == 1


def test_what_is_asked_for_must_be_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shards(tmp_path, "csv", [2])
    path = tmp_path / "shard-0.csv"
    for made in (TarDataset, NumpyShards, ParquetShards, CSVShards):
        with pytest.raises(
            FileNotFoundError, match=rf"{made.__name__}: there is no file '.*/none-\*', and none that it"
        ):
            made(tmp_path / "none-*")
        with pytest.raises(hm.ArgumentError, match=f"{made.__name__}: needs at least one file"):
            made([])
        with pytest.raises(hm.ArgumentError, match=f"{made.__name__}: rank must be 0 to num_replicas - 1, got 2 of 2"):
            made(path, num_replicas=2, rank=2)
        with pytest.raises(hm.ArgumentError, match=f"{made.__name__}: rank must be .*, got '0' of 2"):
            made(path, num_replicas=2, rank="0")
        with pytest.raises(hm.ArgumentError, match=f"{made.__name__}: give num_replicas and rank, or neither"):
            made(path, rank=0)
    with pytest.raises(hm.ArgumentError, match=r"has no column \['y', 'z'\]; it has \['id', 'text', 'x'\]"):
        CSVShards(path, ["y"], {"z": int})
    with pytest.raises(hm.ArgumentError, match="dtypes are int, float, bool and str"):
        CSVShards(path, dtypes={"id": complex})
    (tmp_path / "twice.csv").write_text("a,a\n")
    with pytest.raises(hm.ArgumentError, match="two columns of one name"):
        CSVShards(tmp_path / "twice.csv")
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(ImportError, match="reading Parquet files needs pyarrow: `pip install pyarrow`"):
        list(ParquetShards(path))


def test_chains_of_shards_are_of_one_process(tmp_path: Path) -> None:
    shards(tmp_path, "npy", [3, 2])
    first, second = (
        [NumpyShards(tmp_path / f"shard-{k}.npy", num_replicas=2, rank=rank) for k in (0, 1)] for rank in (0, 1)
    )
    parts = [[int(sample) for sample in one + other] for one, other in (first, second)]
    assert parts == [[0, 2, 100], [1, 101]]
    with pytest.raises(
        hm.ArgumentError, match=r"streams have different \(rank, num_replicas\), \[\(0, 2\), \(1, 2\)\]"
    ):
        list(first[0] + second[1])
