"""Data sets of files: NumPy's, CSV, folders of images (Pillow) and Parquet (pyarrow), the last two loaded when used."""

from __future__ import annotations

import csv
import math
import os
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np

from hybridml_compiler.errors import ArgumentError

from .. import arrays as xp
from ..core.tensor import Tensor
from .dataset import Dataset

Name = str | os.PathLike[str]
IMAGES = (".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")
UTF8 = "utf-8-sig"  # with the mark that Excel writes, and without


class _Table(Dataset[Any]):
    """Base of data sets of columns: samples are dicts of them, or with a `target` pairs of the others and it."""

    names: list[str]
    target: str | None

    def _choose(self, what: str, known: Sequence[str], columns: Sequence[str] | None, target: str | None) -> None:
        asked = [*(columns or ()), *(() if target is None else (target,))]
        missing = [name for name in asked if name not in known]
        if missing:
            raise ArgumentError(f"{type(self).__name__}: {what} has no column {missing}; it has {list(known)}")
        self.names = [name for name in (columns or known) if name != target]
        self.target = target

    def _rows(self, indices: np.ndarray) -> dict[str, np.ndarray]:
        """The columns at some rows."""
        raise NotImplementedError

    def _places(self, indices: np.ndarray) -> np.ndarray:
        outside = indices[(indices < -len(self)) | (indices >= len(self))]
        if outside.size:
            raise IndexError(f"{type(self).__name__}: row {outside[0]} is outside of {len(self)}")
        return indices % max(1, len(self))

    def __repr__(self) -> str:
        target = "" if self.target is None else f", target={self.target!r}"
        return f"{type(self).__name__}({len(self)} rows of {self.names}{target})"

    def __getitem__(self, index: int) -> Any:
        row = {name: column[0] for name, column in self._rows(self._places(np.array([index]))).items()}
        if self.target is None:
            return {name: value.item() if isinstance(value, np.generic) else value for name, value in row.items()}
        return self._features(row, ()), row[self.target]

    def batch(self, indices: np.ndarray) -> Any:
        """The rows at `indices`, collated."""
        rows = self._rows(self._places(indices))
        if self.target is None:
            return {name: _collated(column) for name, column in rows.items()}
        return xp.asarray(self._features(rows, (len(indices),))), _tensor(rows[self.target])

    def _features(self, rows: dict[str, np.ndarray], shape: tuple[int, ...]) -> np.ndarray:
        """The numbers of all columns but the target side by side, as the default float."""
        columns = [rows[name] for name in self.names]
        if any(column.dtype.kind not in "biuf" for column in columns):
            named = [name for name, column in zip(self.names, columns, strict=True) if column.dtype.kind not in "biuf"]
            raise ArgumentError(f"{type(self).__name__}: columns {named} are no numbers; choose others with columns=")
        return np.concatenate([column.reshape(*shape, -1) for column in columns], -1).astype(xp.get_default_dtype())


def _collated(column: np.ndarray) -> Any:
    """A column of rows that have Python's numbers: of the default dtypes."""
    return xp.asarray(column.tolist()) if column.ndim == 1 and column.dtype.kind in "biufc" else _tensor(column)


def _tensor(column: np.ndarray) -> Any:
    return xp.asarray(column) if column.dtype.kind in "biufc" else column.tolist()


class NumpyDataset(Dataset[Any]):
    """Data set of `.npy` files, whose sample k is the tuple of row k of each; of one `.npz` file a dict by name.

    Files `.npy` are mapped: a sample reads what it needs, in every worker process. Raises ArgumentError where the first
    axes differ, and for files of other kinds.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     np.save(f"{folder}/x.npy", np.arange(6.0).reshape(3, 2))
    ...     np.save(f"{folder}/y.npy", np.array([0, 1, 2]))
    ...     data = NumpyDataset(f"{folder}/x.npy", f"{folder}/y.npy")
    ...     len(data), data[2]
    (3, (array([4., 5.]), np.int64(2)))
    """

    def __init__(self, *paths: Name) -> None:
        self.paths = [os.fspath(path) for path in paths]
        self._open()
        lengths = {array.shape[:1] for array in self.arrays}
        if len(lengths) != 1 or () in lengths:
            shapes = dict(zip(self.names or self.paths, (array.shape for array in self.arrays), strict=True))
            raise ArgumentError(f"NumpyDataset: arrays need rows, and first axes must be equal, got shapes {shapes}")

    def _open(self) -> None:
        self.names: list[str] | None = None
        if len(self.paths) == 1 and self.paths[0].endswith(".npz"):
            # `np.load` of a path leaves damaged files open.
            with _numbers_of(self.paths[0]), open(self.paths[0], "rb") as file, np.load(file) as found:
                self.names = list(found.files)
                self.arrays: list[np.ndarray] = [found[name] for name in self.names]
        elif self.paths and all(path.endswith(".npy") for path in self.paths):
            self.arrays = list(map(_mapped, self.paths))
        else:
            raise ArgumentError(f"NumpyDataset: takes .npy files, or one .npz file, got {self.paths}")

    def __getstate__(self) -> dict[str, Any]:  # another process maps the files again
        return {"paths": self.paths}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.paths = state["paths"]
        self._open()

    def __len__(self) -> int:
        return len(self.arrays[0])

    def __getitem__(self, index: int) -> Any:
        if not -len(self) <= index < len(self):
            raise IndexError(f"NumpyDataset: row {index} is outside of {len(self)}")
        return self._beside([np.array(array[index])[()] for array in self.arrays])

    def batch(self, indices: np.ndarray) -> Any:
        """The rows at `indices`, as tensors."""
        return self._beside([xp.asarray(np.asarray(array[indices])) for array in self.arrays])

    def _beside(self, parts: list[Any]) -> Any:
        return tuple(parts) if self.names is None else dict(zip(self.names, parts, strict=True))


def _mapped(path: str) -> np.ndarray:
    with _numbers_of(path):
        return np.load(path, mmap_mode="r")


@contextmanager
def _numbers_of(path: str) -> Iterator[None]:
    """Raises ArgumentError for what NumPy says of arrays of Python objects."""
    try:
        yield
    except ValueError as error:
        if "bject" not in str(error):  # "Object arrays cannot be loaded", "Python objects in dtype"
            raise
        raise ArgumentError(
            f"NumpyDataset: {path} has Python objects, which can run any program where they are read; write numbers or "
            "text of a fixed length"
        ) from error


def read_csv(
    path: Name, columns: Sequence[str] | None = None, delimiter: str = ",", header: bool = True, encoding: str = UTF8
) -> dict[str, np.ndarray]:
    """Reads the columns of a CSV file by their names; without a `header` they are called "0", "1", and so on.

    A column is int64 where all its fields are whole numbers, bool where all are "true" or "false", float64 where all
    are numbers or empty (NaN), text otherwise. Raises ArgumentError for a line with another number of fields, two
    columns of one name, and names that are not there.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     _ = Path(folder, "table.csv").write_text("size,price,kind\\n1,0.5,a\\n2,,b\\n")
    ...     read_csv(Path(folder, "table.csv"))
    {'size': array([1, 2]), 'price': array([0.5, nan]), 'kind': array(['a', 'b'], dtype='<U1')}
    """
    with open(path, newline="", encoding=encoding) as file:
        lines = csv.reader(file, delimiter=delimiter)
        rows = [(lines.line_num, row) for row in lines if row]
    names = rows.pop(0)[1] if header and rows else [str(k) for k in range(len(rows[0][1]) if rows else 0)]
    wrong = next(((line, row) for line, row in rows if len(row) != len(names)), None)
    if wrong is not None:
        raise ArgumentError(f"read_csv: {path}, line {wrong[0]} has {len(wrong[1])} fields, not {len(names)}")
    if len({*names}) < len(names):
        raise ArgumentError(f"read_csv: {path} has two columns of one name; it has {names}")
    missing = [name for name in columns or () if name not in names]
    if missing:
        raise ArgumentError(f"read_csv: {path} has no column {missing}; it has {names}")
    fields = dict(zip(names, zip(*(row for _, row in rows), strict=True) if rows else [()] * len(names), strict=True))
    return {name: parsed(fields[name])[1] for name in columns or names}


def parsed(fields: Sequence[str]) -> tuple[type, np.ndarray]:
    """The first of the kinds that all fields are of, and their values."""
    for kind, (converted, dtype) in KINDS.items():
        with suppress(ValueError, OverflowError):
            return kind, np.array([converted(field) for field in fields], dtype)
    raise AssertionError("every field is a string")


def _plain(field: str) -> str:
    if "_" in field:  # which Python takes in numbers, and no file means
        raise ValueError(field)
    return field


def _whole(field: str) -> int:
    return int(_plain(field))


def _truth(field: str) -> bool:
    return ("false", "true").index(field.strip().lower()) == 1


def _number(field: str) -> float:
    return float(_plain(field)) if field.strip() else math.nan


# Types of columns, those first that are preferred: how a field is converted (ValueError where it is none), the dtype.
KINDS: dict[type, tuple[Callable[[str], Any], Any]] = {
    int: (_whole, np.int64),
    bool: (_truth, np.bool_),
    float: (_number, np.float64),
    str: (str, str),
}


class CSVDataset(_Table):
    """Data set of the rows of a CSV file: dicts of columns, or with a `target` pairs (numbers of the others, target).

    `columns` chooses columns; the file is read once, as `read_csv` does. Raises ArgumentError for names that are not
    there, and for text among the numbers.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "table.csv")
    ...     _ = path.write_text("size,price,kind\\n1,0.5,a\\n2,1.5,b\\n")
    ...     whole, pairs = CSVDataset(path), CSVDataset(path, columns=["size"], target="price")
    >>> whole[1]
    {'size': 2, 'price': 1.5, 'kind': 'b'}
    >>> pairs[1]
    (array([2.], dtype=float32), np.float64(1.5))
    """

    def __init__(
        self,
        path: Name,
        columns: Sequence[str] | None = None,
        target: str | None = None,
        delimiter: str = ",",
        header: bool = True,
        encoding: str = UTF8,
    ) -> None:
        table = read_csv(path, None, delimiter, header, encoding)
        self._choose(str(path), list(table), columns, target)
        kept = [*self.names, *(() if target is None else (target,))]
        self.table = {name: table[name] for name in kept}
        self._length = len(next(iter(table.values()), ()))

    def __len__(self) -> int:
        return self._length

    def _rows(self, indices: np.ndarray) -> dict[str, np.ndarray]:
        return {name: column[indices] for name, column in self.table.items()}


def read_parquet(path: Name, columns: Sequence[str] | None = None) -> dict[str, np.ndarray]:
    """Reads columns of a Parquet file by their names; needs pyarrow. Columns of lists of one length have two axes.

    Null is NaN among floats, and None in columns of text, bytes, lists and structs, which are Python objects. Raises
    ArgumentError for null among whole numbers and bools, whose type cannot have it.

    >>> read_parquet("table.parquet")  # doctest: +SKIP
    {'size': array([1, 2]), 'price': array([0.5, 1.5])}
    """
    table = _needed("pyarrow.parquet", "pyarrow", "Parquet files").read_table(
        os.fspath(path), columns=None if columns is None else list(columns), use_threads=False
    )
    return {name: _column(f"read_parquet: {path}", name, table.column(name)) for name in table.column_names}


def _column(what: str, name: str, column: Any) -> np.ndarray:
    """A column, or a part of one, whose values have the same types in every part."""
    values = column.combine_chunks()
    kind = _without_null(values)
    if kind is not None:  # pyarrow makes floats of numbers, of another value from 2**53 on, in the parts with null only
        raise ArgumentError(
            f"{what} has null in column {name!r} of {kind}; write it filled (pyarrow.compute.fill_null) or as floats "
            '(column.cast("float64")), or choose other columns with columns='
        )
    found: np.ndarray = values.to_numpy(False)
    if found.dtype == object and len(found):
        if all(isinstance(row, np.ndarray) for row in found) and len({row.shape for row in found}) == 1:
            return np.stack(list(found))
        if all(isinstance(value, str) for value in found):
            return found.astype(str)
    return found


def _without_null(values: Any) -> Any:
    """The type of whole numbers or bools, also those in lists, among which there is null; None where there is not."""
    while hasattr(values, "values"):  # of lists
        values = values.flatten()
    return values.type if values.null_count and str(values.type).startswith(("int", "uint", "bool")) else None


def _joined(parts: Sequence[np.ndarray]) -> np.ndarray:
    """Parts of a column one after the other: of objects where lists have other lengths in another part."""
    if len({part.shape[1:] for part in parts}) > 1:
        parts = [np.fromiter(part, object, len(part)) for part in parts]
    return np.concatenate(parts)


class ParquetDataset(_Table):
    """Data set of the rows of a Parquet file: dicts of columns, or with a `target` pairs as those of `CSVDataset`.

    Needs pyarrow. Row groups are read when a sample of theirs is asked for, and the last two are kept: a shuffled order
    reads faster where groups are small. Null is as in `read_parquet`. Raises ArgumentError for names that are not
    there, and for null among whole numbers and bools.

    >>> ParquetDataset("table.parquet", columns=["size"], target="price")[0]  # doctest: +SKIP
    (array([1.], dtype=float32), np.float64(0.5))
    """

    def __init__(self, path: Name, columns: Sequence[str] | None = None, target: str | None = None) -> None:
        self.path = os.fspath(path)
        self._open()
        self._choose(self.path, self.file.schema_arrow.names, columns, target)

    def _open(self) -> None:
        self.file = _needed("pyarrow.parquet", "pyarrow", "Parquet files").ParquetFile(self.path)
        about = self.file.metadata
        self.ends = list(accumulate(about.row_group(k).num_rows for k in range(about.num_row_groups)))
        self.recent: dict[int, dict[str, np.ndarray]] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {"path": self.path, "names": self.names, "target": self.target}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._open()

    def __len__(self) -> int:
        return self.ends[-1] if self.ends else 0

    def _group(self, number: int) -> dict[str, np.ndarray]:
        found = self.recent.get(number)
        if found is None:
            names = [*self.names, *(() if self.target is None else (self.target,))]
            table = self.file.read_row_group(number, columns=names, use_threads=False)
            found = {name: _column(f"ParquetDataset: {self.path}", name, table.column(name)) for name in names}
            self.recent = dict([*self.recent.items()][-1:]) | {number: found}  # at once: threads read it
        return found

    def _rows(self, indices: np.ndarray) -> dict[str, np.ndarray]:
        groups = np.array([bisect_right(self.ends, int(index)) for index in indices])
        places = indices - np.array([0, *self.ends])[groups]
        parts, order = [], []
        for number in np.unique(groups):
            chosen = np.flatnonzero(groups == number)
            order.append(chosen)
            parts.append({name: column[places[chosen]] for name, column in self._group(int(number)).items()})
        back = np.argsort(np.concatenate(order)) if order else np.zeros(0, np.int64)
        return {name: _joined([part[name] for part in parts])[back] for name in parts[0]} if parts else {}


def read_image(path: Name, mode: str = "RGB") -> Tensor:
    """Reads an image as bytes (channels, height, width); needs Pillow.

    `mode` is Pillow's name of the channels: "L" is one, of grey, and "RGBA" has a fourth.

    >>> read_image("cat.jpg").shape  # doctest: +SKIP
    (3, 480, 640)
    """
    pixels = np.asarray(_opened(os.fspath(path), mode))
    planes = pixels[None] if pixels.ndim == 2 else np.moveaxis(pixels, -1, 0)
    return xp.asarray(np.ascontiguousarray(planes))


def _opened(path: str, mode: str = "RGB") -> Any:
    with open(path, "rb") as file, _needed("PIL.Image", "pillow", "images").open(file) as image:
        return image.convert(mode)


class ImageFolder(Dataset[Any]):
    """Data set of images in one folder for each class: samples are (image, number of the class).

    Classes are the folders of `root` in alphabetical order (`classes`, `class_to_idx`), images all files below them
    with one of `extensions`. `loader` opens a file, by default as one of Pillow's images in colours; `transform` and
    `target_transform` are applied to what it gives and to the number. Raises ArgumentError where there is no class, or
    a class without images.

    >>> ImageFolder("pets", transform=hm.data.transforms.ToTensor())[0]  # doctest: +SKIP
    (Tensor([[[...]]]), 0)
    """

    def __init__(
        self,
        root: Name,
        transform: Callable[[Any], Any] | None = None,
        target_transform: Callable[[int], Any] | None = None,
        loader: Callable[[str], Any] | None = None,
        extensions: Iterable[str] = IMAGES,
    ) -> None:
        self.root, self.transform, self.target_transform = os.fspath(root), transform, target_transform
        self.loader = _opened if loader is None else loader
        self.classes = sorted(entry.name for entry in os.scandir(root) if entry.is_dir())
        self.class_to_idx = {name: number for number, name in enumerate(self.classes)}
        kinds = tuple(extension.lower() for extension in extensions)
        self.samples = [
            (str(path), number)
            for name, number in self.class_to_idx.items()
            for path in sorted(Path(root, name).rglob("*"))
            if path.name.lower().endswith(kinds) and path.is_file()
        ]
        self.targets = [number for _, number in self.samples]
        empty = sorted({*self.classes} - {self.classes[number] for number in self.targets})
        if empty or not self.classes:
            raise ArgumentError(f"ImageFolder: {self.root} has no images {f'of {empty}' if empty else 'in folders'}")

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        path, number = self.samples[index]
        image = self.loader(path)
        target = number if self.target_transform is None else self.target_transform(number)
        return image if self.transform is None else self.transform(image), target

    def __repr__(self) -> str:
        return f"ImageFolder({len(self)} images of {len(self.classes)} classes in {self.root!r})"


def _needed(module: str, package: str, what: str) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        raise ImportError(f"reading {what} needs {package}: `pip install {package}`") from error
