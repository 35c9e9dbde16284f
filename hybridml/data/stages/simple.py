"""Stages without a memory: their place is that of the stage behind them."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Any

from ..collate import default_collate
from .checks import at_least_one
from .reading import Reading
from .stage import Cursor, Stage, as_stage


class Through(Cursor):
    """Base of cursors whose place is that of the cursor behind them."""

    def __init__(self, cursor: Cursor) -> None:
        self.cursor = cursor

    def place(self) -> Any:
        return self.cursor.place()


class Map(Stage):
    """A function of each sample."""

    def __init__(self, source: Any, function: Callable[[Any], Any]) -> None:
        self.source, self.function = as_stage(source), function

    @property
    def chain(self) -> str:  # one `map` more or less changes no place
        return self.source.chain

    def open(self, reading: Reading, place: Any) -> Cursor:
        return Mapped(self.source.open(reading, place), self.function)


class Mapped(Through):
    """Samples that the function makes of those behind."""

    def __init__(self, cursor: Cursor, function: Callable[[Any], Any]) -> None:
        super().__init__(cursor)
        self.function = function

    def __next__(self) -> Any:
        sample = next(self.cursor)
        try:
            return self.function(sample)
        except StopIteration as error:  # which would end the stream without a word
            raise RuntimeError("map: the function raised StopIteration") from error
        except Exception as error:
            if isinstance(sample, dict) and "__key__" in sample:
                error.add_note(f"map: of the sample {sample['__key__']!r} of {sample.get('__url__')}")
            raise


class Batch(Stage):
    """Groups of samples, collated."""

    def __init__(self, source: Any, batch_size: int, drop_last: bool) -> None:
        self.source, self.drop_last = as_stage(source), drop_last
        self.batch_size = at_least_one("batch", "batch_size", batch_size)
        self.step = f"batch({self.batch_size}, drop_last=True)" if drop_last else f"batch({self.batch_size})"

    def open(self, reading: Reading, place: Any) -> Cursor:
        return Batches(self.source.open(reading, place), self.batch_size, self.drop_last)


class Batches(Through):
    """Batches of so many samples of those behind."""

    def __init__(self, cursor: Cursor, batch_size: int, drop_last: bool) -> None:
        super().__init__(cursor)
        self.batch_size, self.drop_last = batch_size, drop_last

    def __next__(self) -> Any:
        group = list(islice(self.cursor, self.batch_size))
        if not group or (self.drop_last and len(group) < self.batch_size):
            raise StopIteration
        return default_collate(group)
