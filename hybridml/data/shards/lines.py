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

SHOWN = 1000  # rows of the first file that decide the types of columns


class CSVShards(Shards):
    """Stream of the rows of many CSV files with the same columns: dicts of Python's numbers and strings.

    paths: a file, a pattern ("train-*.csv", in alphabetical order) or a list of them, divided as those of `NumpyShards`
    are. `columns` chooses columns. `dtypes` gives their types (int, float, bool, str) by name; others are found in the
    first 1000 rows of the first file, as `read_csv` does. Files are read line by line; the bytes of `encoding` end
    lines as those of UTF-8 do.

    Raises FileNotFoundError where nothing matches, ArgumentError for columns that are not there and for other types;
    ShardError, with the file, the line and the byte where it begins, for lines that do not have the columns or types.

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
        self.known, self.types = known, {name: (dtypes or {}).get(name, found[name]) for name in wanted}

    def shard(self, path: str, first: int, step: int, place: Any) -> Cursor:
        return Rows(self, Lines(path, self.delimiter, self.encoding, *(place or [])[:2]), first, step, place)


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
        if at.offset > size:
            raise ValueError(f"the file has {size} bytes")
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

    def __init__(self, shards: CSVShards, lines: Lines, first: int, step: int, place: Any) -> None:
        self.shards, self.lines, self.first, self.step = shards, lines, first, step
        self.number = 0 if place is None else place[2]
        self.kept = [(shards.known.index(name), name, kind) for name, kind in shards.types.items()]
        if place is None and shards.header and next(lines, shards.known) != shards.known:
            raise ShardError(f"CSVShards: {lines.path} has other columns than {shards.paths[0]}: {shards.known}")

    def __next__(self) -> dict[str, Any]:
        while True:
            where = str(self.lines.at)
            row = next(self.lines)
            self.number += 1
            if len(row) != len(self.shards.known):
                raise self._error(where, f"has {len(row)} fields, not {len(self.shards.known)}")
            if (self.number - 1) % self.step == self.first:
                return {name: self._value(row[k], name, kind, where) for k, name, kind in self.kept}

    def place(self) -> list[int]:
        return [self.lines.at.offset, self.lines.at.line, self.number]

    def _value(self, field: str, name: str, kind: type, where: str) -> Any:
        try:
            return KINDS[kind][0](field)
        except ValueError:
            wider = float if kind is int and parsed([field])[0] is float else str
            hint = f"give the type of the column, as dtypes={{{name!r}: {wider.__name__}}}"
            raise self._error(where, f"has {field!r} in column {name!r}, no {kind.__name__}; {hint}") from None

    def _error(self, where: str, what: str) -> ShardError:
        return ShardError(f"CSVShards: {self.lines.path}, {where} {what}")
