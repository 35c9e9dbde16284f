"""Step-numbered checkpoints of a training: a step's folder is there with all its files, or not at all."""

from __future__ import annotations

import itertools
import os
import re
import shutil
from collections.abc import Iterator, Mapping, MutableMapping
from functools import cache
from pathlib import Path
from typing import Any

from hybridml_compiler.errors import ArgumentError

from ..arrays.creation import asarray
from ..core.pytree import tree_leaves
from ..core.tensor import Tensor
from ..data import DataLoader
from ..data.stages.stage import Stage
from ..io import CheckpointError, load, save
from ..nn.module import Module
from ..random import default_generator
from .functions import barrier, broadcast
from .groups import Group, default
from .placing.homes import bring
from .resharding import members, placed, with_parts, without_parts

_STEP = re.compile(r"step-(\d+)")
_READERS = (DataLoader, Stage)  # each process is at a place of its own
# Files of what all processes have alike, of one process's generator and places in data, and of its parts.
_STATE, _OWN, _PARTS = "state.safetensors", "rank-{}.safetensors", "parts-{}.safetensors"


class CheckpointManager:
    """Checkpoints of a training in a folder, with the names of JAX's Orbax: saved by step, the last one restored.

    directory: the folder, made where it is missing, which all processes see. max_to_keep: checkpoints that stay, the
    last ones (None: all). save_interval_steps: `save` does nothing at other steps than its multiples.

    What is saved is a dict of objects that have a ``state_dict()`` and a ``load_state_dict(state)`` (models,
    optimizers, schedules, loaders, samplers), or dicts of tensors, numbers and texts. Process 0 writes what all
    processes have alike; what each has a part of (`fully_shard`, `ZeroRedundancyOptimizer`) is written in parts, and
    restored by any number of processes; the state of the default generator, and where a loader or a stream is, are each
    process's own. A checkpoint is written beside its place and then renamed: whatever is killed at any time leaves
    whole ones. Not for use in a traced function.

    >>> import tempfile
    >>> import hybridml as hm
    >>> from hybridml import distributed as dist
    >>> model, notes = hm.nn.Linear(2, 1), {"best": 0.0}
    >>> manager = dist.CheckpointManager(tempfile.mkdtemp(), save_interval_steps=10)
    >>> for step in range(manager.restore({"model": model, "notes": notes}) or 0, 25):
    ...     notes["best"] = 1.0 * step
    ...     saved = manager.save(step, {"model": model, "notes": notes})
    >>> manager.all_steps(), manager.restore({"model": model, "notes": notes}), notes["best"]
    ([0, 10, 20], 20, 20.0)
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        max_to_keep: int | None = 3,
        save_interval_steps: int = 1,
        group: Group | None = None,
    ) -> None:
        for name, value in (("max_to_keep", max_to_keep), ("save_interval_steps", save_interval_steps)):
            if value is not None and value < 1:
                raise ArgumentError(f"CheckpointManager: {name} must be 1 or more, got {value}")
        self.directory, self.max_to_keep, self.save_interval_steps = Path(directory), max_to_keep, save_interval_steps
        self.group = default(group)

    def all_steps(self) -> list[int]:
        """The steps that have a checkpoint, in their order."""
        names = os.listdir(self.directory) if self.directory.is_dir() else []
        return sorted(int(found[1]) for name in names if (found := _STEP.fullmatch(name)))

    def latest_step(self) -> int | None:
        """The last step that has a checkpoint, for all processes that which process 0 finds; None without any."""
        here = max(self.all_steps(), default=-1)
        found = int(broadcast(asarray(here), 0, self.group))
        return None if found < 0 else found

    def save(self, step: int, state: Mapping[str, Any]) -> bool:
        """Saves a step, where it is a multiple of the interval; returns whether it has. All processes must call it.

        Raises TypeError for what has no state, ArgumentError for parts that other processes could not use, OSError
        where the folder cannot be written.
        """
        if step % self.save_interval_steps:
            return False
        bring(itertools.chain.from_iterable(map(_tensors, state.values())))
        saved = {name: _saved(name, value) for name, value in state.items()}
        places = placed(state)
        tree, parts = without_parts(saved, places, members(places, self.group))
        place, part = self._place(step), self.directory / f".step-{step}.part"
        if self.group.rank == 0:
            for old in self.directory.glob(".step-*.part"):  # of runs that were killed
                shutil.rmtree(old)
            part.mkdir(parents=True)
            save(tree, part / _STATE)
        barrier(self.group)
        if parts:
            save(parts, part / _PARTS.format(self.group.rank))
        own = {name: saved[name] for name, value in state.items() if isinstance(value, _READERS)}
        save({"random": default_generator.get_state(), "read": own}, part / _OWN.format(self.group.rank))
        barrier(self.group)
        if self.group.rank == 0:
            old = self.directory / f".step-{step}.old.part"
            if place.exists():
                place.rename(old)
            part.rename(place)
            shutil.rmtree(old, ignore_errors=True)
            for known in self.all_steps()[: -self.max_to_keep] if self.max_to_keep else ():
                shutil.rmtree(self._place(known))
        return True

    def restore(self, state: Mapping[str, Any], step: int | None = None) -> int | None:
        """Gives the objects what a checkpoint has of them, the last one by default; returns its step, None without any.

        All processes must call it. There may be more or fewer of them than have saved: a process that the checkpoint
        does not know keeps its generator. Raises CheckpointError for files that are damaged or lack a name of `state`.
        """
        step = self.latest_step() if step is None else step
        if step is None:
            return None
        place = self._place(step)
        found = load(place / _STATE)
        if missing := sorted(state.keys() - found.keys()):
            raise CheckpointError(f"restore: {place} has no {missing[0]!r}; it has {', '.join(map(repr, found))}")
        path = place / _OWN.format(self.group.rank)
        own = load(path) if path.exists() else {}
        tree = with_parts(found, placed(state), cache(lambda rank: load(place / _PARTS.format(rank))))
        for name, value in state.items():
            _restore(value, own.get("read", {}).get(name, tree[name]))
        if own:
            default_generator.set_state(own["random"])
        return step

    def _place(self, step: int) -> Path:
        return self.directory / f"step-{step}"


def _saved(name: str, value: Any) -> Any:
    if hasattr(value, "state_dict") and hasattr(value, "load_state_dict"):
        return value.state_dict()
    if isinstance(value, MutableMapping):
        return dict(value)
    raise TypeError(
        f"CheckpointManager.save: {name!r} must have state_dict() and load_state_dict(), or be a dict, got "
        f"{type(value).__name__}; put numbers and tensors into a dict"
    )


def _tensors(value: Any) -> Iterator[Tensor]:
    """The tensors of a module or an optimizer."""
    if isinstance(value, Module):
        yield from itertools.chain(value.parameters(), value.buffers())
    elif hasattr(value, "param_groups"):
        yield from (t for t in tree_leaves([*getattr(value, "state", {}).values()]) if isinstance(t, Tensor))


def _restore(value: Any, state: Any) -> None:
    if isinstance(value, MutableMapping):
        value.clear()
        value.update(state)
    else:
        value.load_state_dict(state)
