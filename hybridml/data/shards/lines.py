"""Shards that are CSV files, read line by line."""

from __future__ import annotations

import csv
import itertools
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hybridml_compiler.errors import ArgumentError

from ..readers import KINDS, UTF8, parsed
from ..stages.stage import Cursor
from .shard import Name, ShardError, Shards, reading_of

GZIP = b"\x1f\x8b"  # the beginning of its files
SHOWN = 1000  # rows of the first file that decide the types of columns


class CSVShards(Shards):
    """Stream of the rows of many CSV files with the same columns: dicts of Python's numbers and strings.

    paths: a file, a pattern ("train-*.csv", in alphabetical order) or a list of them, divided as those of `NumpyShards`
    are. `columns` chooses columns. `dtypes` gives their types (int, float, bool, str) by name; others are found in the
    first 1000 rows of the first file, as `read_csv` does. With a `header` columns are found by name: their order is
    each file's own, and those that `columns` does not choose may be others. Files are read line by line; the bytes of
    `encoding` end lines as those of UTF-8 do.

    Raises FileNotFoundError where nothing matches, ArgumentError for columns that are not there, for other types and
    for compressed files; ShardError for a file that is empty or has other columns, and with the file, the line and the
    byte where it begins for lines that do not have the columns or types.

    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     for k in range(2):
    ...         _ = Path(folder, f"{k}.csv").write_text(f"size,price\\n{k},0.5\\n")
    ...     list(CSVShards(f"{folder}/*.csv"))
    [{'size': 0, 'price': 0.5}, {'size': 1, 'price': 0.5}]
    """

    def __init__(
        self,
        paths: Name | Sequence[Name],
        columns: Sequence[str] | None = None,
        dtypes: Mapping[str, type] | None = None,
        delimiter: str = ",",
        header: bool = True,
        encoding: str = UTF8,
        *,
        num_replicas: int | None = None,
        rank: int | None = None,
    ) -> None:
        super().__init__(paths, num_replicas, rank)
        self.delimiter, self.header, self.encoding = delimiter, header, encoding
        path = self.paths[0]
        lines = Lines(path, delimiter, encoding)
        rows = list(itertools.islice(lines, SHOWN + 1))
        known = rows.pop(0) if header and rows else [str(k) for k in range(len(rows[0]) if rows else 0)]
        missing = [name for name in (*(columns or ()), *(dtypes or ())) if name not in known]
        if missing or len({*known}) < len(known):
            what = f"has no column {missing}" if missing else "has two columns of one name"
            raise ArgumentError(f"CSVShards: {path} {what}; it has {known}")
        if not {*(dtypes or {}).values()} <= KINDS.keys():
            raise ArgumentError(f"CSVShards: dtypes are int, float, bool and str, got {dtypes}")
        wanted = list(columns or known)
        fields = {name: [row[k] for row in rows if len(row) == len(known)] for k, name in enumerate(known)}
        found = {name: parsed(fields[name])[0] for name in wanted}
        self.known, self.exact = known, columns is None
        self.types = {name: (dtypes or {}).get(name, found[name]) for name in wanted}

    def shard(self, path: str, first: int, step: int, place: Any) -> Cursor:
        begin = Lines(path, self.delimiter, self.encoding)
        names = next(begin, []) if self.header else self.known
        if any(names.count(name) != 1 for name in self.types) or (self.exact and {*names} != {*self.known}):
            raise ShardError(
                f"CSVShards: {path} has other columns than {self.paths[0]}: it has {names}, and {list(self.types)} are "
                "read; write these, each once, or choose others with columns="
            )
        lines = begin if place is None else Lines(path, self.delimiter, self.encoding, *place[:2])
        return Rows(self, names, lines, first, step, place)


@dataclass
class Place:
    """The byte and the line where the next row begins."""

    offset: int
    line: int

    def __str__(self) -> str:
        return f"line {self.line} at byte {self.offset}"


def text_lines(path: str, encoding: str, at: Place) -> Iterator[str]:
    """The lines of a file from a place on, which goes along."""
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if not size or at.offset > size:
            raise ValueError(f"the file has {size} bytes")
        if file.read(len(GZIP)) == GZIP:
            raise ArgumentError(f"CSVShards: {path} is compressed, and text is read; unpack it (gunzip)")
        file.seek(at.offset)
        for line in file:
            at.offset, at.line = at.offset + len(line), at.line + 1
            yield line.decode(encoding)


class Lines(Iterator[list[str]]):
    """The fields of each row of a file, from a place on."""

    def __init__(self, path: str, delimiter: str, encoding: str, offset: int = 0, line: int = 1) -> None:
        self.path, self.at = path, Place(offset, line)
        # The generator does not know this object: its file is closed when this is dropped.
        self.rows = csv.reader(text_lines(path, encoding, self.at), delimiter=delimiter, strict=True)

    def __next__(self) -> list[str]:
        with reading_of("CSVShards", self.path, str(self.at)):
            try:
                row = next((row for row in self.rows if row), None)
            except csv.Error as error:
                raise ValueError(error) from None
        if row is None:
            raise StopIteration
        return row


class Rows(Cursor):
    """Every `step`-th row of a file, whose place is the byte and the line where the next one begins, and its number."""

    def __init__(self, shards: CSVShards, names: list[str], lines: Lines, first: int, step: int, place: Any) -> None:
        self.lines, self.first, self.step, self.count = lines, first, step, len(names)
        self.number = 0 if place is None else place[2]
        self.kept = [(names.index(name), name, kind) for name, kind in shards.types.items()]

    def __next__(self) -> dict[str, Any]:
        while True:
            where = str(self.lines.at)
            row = next(self.lines)
            self.number += 1
            if len(row) != self.count:
                raise self._error(where, f"has {len(row)} fields, not {self.count}")
            if (self.number - 1) % self.step == self.first:
                return {name: self._value(row[k], name, kind, where) for k, name, kind in self.kept}

    def place(self) -> list[int]:
        return [self.lines.at.offset, self.lines.at.line, self.number]

    def _value(self, field: str, name: str, kind: type, where: str) -> Any:
        try:
            return KINDS[kind][0](field)
        except ValueError:
            hint = f"write one{' or nothing' * (kind is float)}, or read text, dtypes={{{name!r}: str}}, and use `map`"
            if kind is int and parsed([field])[0] is float:
                hint = f"dtypes={{{name!r}: float}} reads it"
            raise self._error(where, f"has {field!r} in column {name!r}, no {kind.__name__}; {hint}") from None

    def _error(self, where: str, what: str) -> ShardError:
        return ShardError(f"CSVShards: {self.lines.path}, {where} {what}")
