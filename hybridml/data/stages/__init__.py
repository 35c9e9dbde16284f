"""Streams in stages that know their place: what `map`, `shuffle` and the other methods of streams return.

reading.py    which shards this process and worker read
stage.py      `IterableDataset`; stages, runs through them, places
checks.py     checks of the numbers that stages take
simple.py     `map`, `batch`
parts.py      streams of parts, `interleave`, chained streams
shuffle.py    `shuffle`
prefetch.py   `prefetch`
cache.py      `cache`
"""

from .cache import Cache
from .parts import ChainDataset
from .prefetch import Prefetch
from .shuffle import Shuffle
from .simple import Batch, Map
from .stage import STAGES, IterableDataset, Run, Stage

STAGES |= {"+": ChainDataset, "map": Map, "batch": Batch, "shuffle": Shuffle, "cache": Cache, "prefetch": Prefetch}

__all__ = ["ChainDataset", "IterableDataset", "Run", "Stage"]
