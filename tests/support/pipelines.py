"""A model of four blocks, its batch, and the stages that it is cut into."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

import hybridml as hm
from hybridml import distributed as dist

SIZES = (6, 9, 7, 8, 5)  # of the tensors between four blocks
BATCH, N = 12, 4


def blocks(seed: int = 0) -> list[hm.nn.Module]:
    hm.manual_seed(seed)
    return [hm.nn.Sequential(hm.nn.Linear(n, m), hm.nn.Tanh()) for n, m in itertools.pairwise(SIZES)]


def batch(rows: int = BATCH) -> tuple[Any, Any]:
    rng = np.random.default_rng(5)
    return hm.asarray(rng.standard_normal((rows, SIZES[0]), np.float32)), hm.asarray(rng.integers(0, SIZES[-1], rows))


def example(k: int, rows: int = BATCH // N) -> hm.ShapeDtypeStruct:
    return hm.ShapeDtypeStruct((rows, SIZES[k]), hm.float32)


def stage_of(model: list[hm.nn.Module], size: int, group: Any = None) -> dist.PipelineStage:
    """The stage of this process: the first ones have one block, the last one the rest."""
    r = dist.get_rank(group)
    part = model[r : r + 1] if r < size - 1 else model[r:]
    return dist.PipelineStage(hm.nn.Sequential(*part), r, size, input_args=example(r), group=group)
