"""The table of factors: what is switched off, or changed, to see what it is worth.

A switch of the compiler (`hm.config(fusion=False)`) is a factor where the program has what it is about. The other
factors run the same function with other threads, on a larger batch, in a narrower dtype, in less memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import numpy as np

from hybridml_compiler.dtypes import bfloat16
from hybridml_compiler.record import replace
from hybridml_compiler.sizes.dims import hint
from hybridml_compiler.targets.cpu.runtime.threads import get_num_threads

from ...amp import autocast
from ...core import ops, pytree
from ...core.tensor import Tensor
from ...inspect.settings import config
from ...tracing.casting import settled
from ...tracing.function import TracedFunction
from ...tracing.run.backend import Backend

_LEAST_SAVED = 1 << 20  # bytes of intermediate values below which nobody computes twice


class Missing(Exception):
    """Why a factor does not apply to a program."""


@dataclass(frozen=True)
class Switch:
    """A part of the compiler. `about`: kinds of operations without which it has nothing to do; none: any program.
    `beyond`: it decides about code, not about the launches of a plan. `alone`: eager code has it as well, so that it is
    no step from the one to the other."""

    title: str
    about: tuple[str, ...] = ()
    beyond: bool = False
    alone: bool = False


SWITCHES: Mapping[str, Switch] = {
    "fusion": Switch("several operations in one kernel"),
    "recompute": Switch("cheap values computed again where they are read"),
    "memory_plan": Switch("values in between share memory"),
    "in_place": Switch("state updated in place"),
    "layout": Switch("channels last between convolutions", ("convolution",)),
    "own_products": Switch("own kernels of matrix products", ("contraction", "convolution"), beyond=True, alone=True),
    "own_convolutions": Switch("own kernels of convolutions", ("convolution",), alone=True),
}


@dataclass(frozen=True)
class Variant:
    """Something that is measured beside the traced function: a call, and what is in force around it."""

    name: str
    title: str
    call: Callable[[], Any]
    around: Callable[[], AbstractContextManager[Any]] = nullcontext
    samples: float = 1.0  # how many times the samples of a call of the traced function
    compiles: bool = True


@dataclass(frozen=True)
class Step:
    """The function that is explained, as its variants need it."""

    plain: Callable[..., Any]
    traced: TracedFunction[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    @property
    def executable(self) -> Any:
        """The program of the last call; None where it ran eagerly."""
        return executable_of(self.traced)

    @property
    def kinds(self) -> set[str]:
        """The kinds of operations that the program runs."""
        launches = getattr(self.executable, "launches", ())
        return {node.op.kind for launch in launches for node in launch.nodes if node.op is not None}

    def again(self, fn: Callable[..., Any] | None = None, backend: Backend | None = None) -> TracedFunction[..., Any]:
        """Another traced function over the same one, or over `fn`."""
        made = TracedFunction(self.traced._fn if fn is None else fn, backend or self.traced._backend)
        return cast(TracedFunction[..., Any], settled(made))

    def call(self, fn: Callable[..., Any]) -> Callable[[], Any]:
        return lambda: fn(*self.args, **self.kwargs)


def switched(step: Step, off: Sequence[str]) -> tuple[TracedFunction[..., Any], Variant]:
    """The function compiled without some parts of the compiler."""
    backend = step.traced._backend
    settings = {**dict(backend.settings), **dict.fromkeys(off, False)}
    title = f"without {', '.join(off).replace('_', ' ')}"
    fn = step.again(backend=replace(backend, settings=tuple(settings.items())))
    return fn, Variant(title, title, step.call(fn))


def program_of(fn: TracedFunction[..., Any], off: Collection[str]) -> object:
    """Returns what tells the program of a function's last call from others: its launches, where they are in memory, and
    which of the switches beyond that are off."""
    beyond = frozenset(name for name in off if SWITCHES[name].beyond)
    launches = getattr(executable_of(fn), "launches", None)
    if launches is None:
        return fn
    return tuple((str(one.spec), one.operands) for one in launches), hint(executable_of(fn).arena_bytes), beyond


def executable_of(fn: TracedFunction[..., Any]) -> Any:
    """The program of the last call; None where it ran eagerly."""
    path = fn.last_path
    return None if path is None else path.program.executable


def applicable(step: Step, known: Collection[str]) -> tuple[str, ...]:
    """The switches that may matter to a program, in the order in which the waterfall turns them on."""
    kinds = step.kinds
    about = {name: switch.about for name, switch in SWITCHES.items() if name in known and kinds}
    return tuple(name for name, of in about.items() if not of or kinds & set(of))


# ---- the other factors: each yields variants, or raises Missing


def threads(step: Step) -> Iterator[Variant]:
    """One thread, and powers of two below all of them."""
    most = get_num_threads()
    if most == 1:
        raise Missing("there is one thread")
    count = 1
    while count < most:
        title = f"{count} thread{'s' * (count != 1)}"
        yield Variant(
            f"threads={count}", title, step.call(step.traced), partial(config, num_threads=count), compiles=False
        )
        count *= 2


def batch(step: Step) -> Iterator[Variant]:
    """Twice the batch: the leading axis that most arguments share, repeated."""
    args, kwargs, size = doubled(step.args, step.kwargs)
    fn = step.again()
    yield Variant("batch", f"a batch of {2 * size} in place of {size}", lambda: fn(*args, **kwargs), samples=2.0)


def doubled(args: Any, kwargs: Any) -> tuple[Any, Any, int]:
    """The arguments with a batch of twice the size, and the size that it had."""
    leaves = pytree.tree_leaves((args, kwargs))
    arrays = [leaf for leaf in leaves if isinstance(leaf, Tensor | np.ndarray) and leaf.ndim]
    if not arrays:
        raise Missing("no argument has an axis that could be a batch")
    size = Counter(leaf.shape[0] for leaf in arrays).most_common(1)[0][0]
    if any(isinstance(leaf, Tensor) and leaf.requires_grad for leaf in arrays):
        raise Missing("an argument with a gradient would be another one if it were repeated")

    def twice(leaf: Any) -> Any:
        if not isinstance(leaf, Tensor | np.ndarray) or not leaf.ndim or leaf.shape[0] != size:
            return leaf
        return np.concatenate([leaf, leaf]) if isinstance(leaf, np.ndarray) else ops.concat([leaf, leaf], axis=0)

    more_args, more_kwargs = pytree.tree_map(twice, (args, kwargs))
    return more_args, more_kwargs, size


def dtype(step: Step) -> Iterator[Variant]:
    """Products and convolutions in bfloat16."""
    if not {"contraction", "convolution"} & set(step.kinds):
        raise Missing("there are no products or convolutions, which autocast would narrow")
    plain = step.plain

    def narrow(*args: Any, **kwargs: Any) -> Any:
        with autocast(dtype=bfloat16):
            return plain(*args, **kwargs)

    yield Variant("dtype", "products in bfloat16", step.call(step.again(narrow)))


def recomputation(step: Step) -> Iterator[Variant]:
    """Two thirds of the memory of intermediate values, the others computed again."""
    arena = hint(getattr(step.executable, "arena_bytes", 0))
    if arena < _LEAST_SAVED:
        raise Missing("its intermediate values take less than 1 MiB")
    backend = step.traced._backend
    if backend.memory is not None or backend.among is not None:
        raise Missing("it has options of its own for memory or devices")
    others = sum(hint(aval.nbytes) for aval in (*step.executable.inputs, *step.executable.outputs))
    least = others + 2 * arena // 3
    fn = step.again(backend=replace(backend, memory=least))
    yield Variant("recomputation", "two thirds of the memory for values in between", step.call(fn))


OTHERS: Mapping[str, Callable[[Step], Iterator[Variant]]] = {
    "threads": threads,
    "batch": batch,
    "dtype": dtype,
    "recomputation": recomputation,
}
