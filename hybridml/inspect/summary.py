"""`hybridml.summary`: the layers of a model, with their shapes, parameters, operations and bytes."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from hybridml_compiler.errors import ArgumentError, user_location

from ..core import pytree
from ..core.context import no_grad
from ..core.nested import Nested
from ..core.tensor import Tensor
from ..display.reports import Report, count, size
from ..display.tables import COUNTS, SIZES, Column, Figure, Table, numbers
from ..tracing.capture.tracer import is_tracing
from ..tracing.specialize.errors import RunEagerly
from .nans import counting
from .snapshot import Snapshot, is_without_shape
from .stances import eager

_HEADS = ("layer", "kind", "calls", "input", "output", "parameters", "bytes", "flops", "activations")
_OF_CALLS = ("input", "output", "flops", "activations")
_UNITS = {"bytes": SIZES, "activations": SIZES, "flops": COUNTS}
_ROOT = "(the model)"


@dataclass(frozen=True)
class LayerLine:
    """One module of a model, with all that is inside of it: what it has, and what its calls did."""

    name: str
    kind: str
    calls: int
    input: str  # the shapes of the first call; empty where it was not called
    output: str
    parameters: int  # numbers in parameters, a shared one once
    own_parameters: int  # without those of the layers inside
    bytes: int  # of parameters and buffers
    flops: int  # of all calls
    own_flops: int  # without those of the layers inside
    activations: int  # bytes of the memory that it or a layer inside returned, and no layer before


@dataclass(frozen=True, repr=False)
class Summary(Report):
    """Report of `hybridml.summary`. Shown as a table, in notebooks as HTML."""

    SCHEMA = 2

    layers: tuple[LayerLine, ...]
    parameters: int
    trainable: int
    bytes: int  # of parameters and buffers
    flops: int
    activations: int
    lazy: int  # parameters that have no shape before the first call

    @property
    def heading(self) -> str:
        """The kind of the model."""
        return f"{self.layers[0].kind}: its layers"

    @property
    def figures(self) -> list[Figure]:
        """Parameters and bytes; of a model that was called, operations and activations."""
        found = [
            Figure(f"{self.parameters:,}", "parameters"), Figure(f"{self.trainable:,}", "of them trainable"),
            Figure(size(self.bytes), "with buffers"),
        ]  # fmt: skip
        if self.layers[0].calls:
            found += [Figure(f"{count(self.flops)}flop", "a call"), Figure(size(self.activations), "of activations")]
        return found

    @property
    def remarks(self) -> list[str]:
        """A sentence on lazy parameters, where there are some."""
        return [f"{self.lazy} parameters have no shape before the first call"] if self.lazy else []

    @property
    def tables(self) -> list[Table]:
        """The layers. Columns of calls are there where the model was called."""
        called = self.layers[0].calls > 0
        several = any(line.calls > 1 for line in self.layers)
        heads = [h for h in _HEADS if (called or h not in _OF_CALLS) and (several or h != "calls")]
        return [Table("Layers", [_column(self.layers, head) for head in heads])]

    @property
    def total(self) -> str:
        """The sums over all layers, as a sentence."""
        has = f"{self.parameters:,} parameters, {self.trainable:,} of them trainable; {size(self.bytes)} with buffers"
        if self.lazy:
            has += f"; {self.lazy} have no shape before the first call"
        if not self.layers[0].calls:
            return has
        return f"{has}; a call: {count(self.flops)}flop, {size(self.activations)} of activations"

    def to_text(self) -> str:
        """The table, and the sums below it."""
        return "\n".join([*self.tables[0].lines(), self.total])


def _column(layers: Sequence[LayerLine], head: str) -> Column:
    found = [getattr(line, "name" if head == "layer" else head) for line in layers]
    if head in _UNITS:
        return numbers("size" if head == "bytes" else head, found, _UNITS[head])
    is_number = isinstance(found[0], int)
    return Column(head, [f"{x:,}" if is_number else str(x) for x in found], "number" if is_number else "text")


def summary(model: Any, *inputs: Any, depth: int | None = None, **named: Any) -> Summary:
    """Summarizes a model: its layers with their shapes, parameters, operations and bytes for these inputs.

    The model is called once with the inputs, eagerly and without gradients, and left as it was, running statistics,
    lazy layers and random numbers included; without inputs it is not called, and on device "meta" nothing is computed.
    The numbers of a layer are those of all its calls, and of the layers inside. `depth`: levels of layers to show, the
    model itself being 0; all without.

    flops: floating-point operations, a multiply-add being two: half of them is what papers and other tools call
    multiply-adds (MACs), but for the elementwise operations, which count one per element here. Of decompositions,
    sorts and Fourier transforms none are counted. activations: the memory of what layers return; what is a view, or in
    place, has none. Raises ArgumentError for what is no module, and whatever the model raises.

    >>> import hybridml as hm
    >>> model = hm.nn.Sequential(hm.nn.Linear(4, 8), hm.nn.ReLU(), hm.nn.Linear(8, 2, bias=False))
    >>> hm.summary(model, hm.ones((3, 4)))
    layer        kind        input   output  parameters  size, B  flops  activations, B
    (the model)  Sequential  (3, 4)  (3, 2)          56      224    336             216
    0            Linear      (3, 4)  (3, 8)          40      160    216              96
    1            ReLU        (3, 8)  (3, 8)           0        0     24              96
    2            Linear      (3, 8)  (3, 2)          16       64     96              24
    56 parameters, 56 of them trainable; 224 B with buffers; a call: 336 flop, 216 B of activations
    """
    if not hasattr(model, "named_modules"):
        raise ArgumentError(f"summary: takes a module, got {type(model).__name__}; for a function there is hm.explain")
    levels: object = depth
    if levels is not None and (isinstance(levels, bool) or not isinstance(levels, int) or levels < 0):
        raise ArgumentError(f"summary: depth must be a number of levels from 0 on, or None, got {depth!r}")
    if is_tracing():
        raise RunEagerly(f"summarizes a model, which counts what it computes ({user_location()})")
    calls = _Calls(model)
    if not inputs and not named:
        return _summary(model, calls, depth)
    snapshot = Snapshot(model=model, inputs=inputs, named=named)
    try:
        with no_grad(), eager():
            if any(map(is_without_shape, (*model.parameters(), *model.buffers()))):
                model(*inputs, **named)  # what gives lazy layers their values is no part of a call
            with calls.watched(inputs, named):
                model(*inputs, **named)
        return _summary(model, calls, depth)
    finally:
        snapshot.restore()


def _summary(model: Any, calls: _Calls, depth: int | None) -> Summary:
    parameters = _sized(model.parameters())
    every = [_line(name, module, calls.of[id(module)]) for name, module in model.named_modules()]
    shown = [line for line in every if depth is None or _level(line.name) <= depth]
    return Summary(
        layers=tuple(shown),
        parameters=every[0].parameters,
        trainable=sum(p.size for p in parameters if p.requires_grad),
        bytes=every[0].bytes,
        flops=every[0].flops,
        activations=every[0].activations,
        lazy=sum(map(is_without_shape, model.parameters())),
    )


def _level(name: str) -> int:
    return 0 if name == _ROOT else name.count(".") + 1


def _sized(tensors: Iterable[Tensor]) -> list[Tensor]:
    return [t for t in tensors if not is_without_shape(t)]


def _line(name: str, module: Any, done: _Done) -> LayerLine:
    parameters = _sized(module.parameters())
    return LayerLine(
        name=name or _ROOT,
        kind=type(module).__name__,
        calls=done.calls,
        input=done.input,
        output=done.output,
        parameters=sum(p.size for p in parameters),
        own_parameters=sum(p.size for p in _sized(module.parameters(recurse=False))),
        bytes=sum(t.nbytes for t in (*parameters, *_sized(module.buffers()))),
        flops=done.flops,
        own_flops=done.own_flops,
        activations=done.activations,
    )


class _Done:
    """Sums over the calls of a module."""

    def __init__(self) -> None:
        self.calls = self.flops = self.own_flops = self.activations = 0
        self.input = self.output = ""


class _Calls:
    """The calls of a model's modules, those that are running now as a stack."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.of = {id(module): _Done() for module in model.modules()}
        self._running: list[_Done] = []
        self._memory: dict[int, weakref.ref[Any]] = {}  # what was returned, by the id of what holds its elements

    @contextmanager
    def watched(self, inputs: Any, named: Any) -> Iterator[None]:
        """A context in which calls are noted. Not by hooks: a call that raises has none after it."""
        self._new_bytes((inputs, named, list(self.model.parameters()), list(self.model.buffers())))
        modules = list(self.model.modules())
        before = [vars(module).get("forward") for module in modules]  # a traced one
        try:
            for module in modules:
                vars(module)["forward"] = self._noting(module.forward, self.of[id(module)])
            with counting(self._add):
                yield
        finally:
            for module, forward in zip(modules, before, strict=True):
                vars(module).pop("forward", None)
                if forward is not None:
                    vars(module)["forward"] = forward

    def _noting(self, forward: Callable[..., Any], done: _Done) -> Callable[..., Any]:
        """A module's `forward` that notes its calls."""

        def call(*args: Any, **kwargs: Any) -> Any:
            self._running.append(done)
            try:
                result = forward(*args, **kwargs)
                made = self._new_bytes(result)
                for around in set(self._running):
                    around.activations += made
            finally:
                self._running.pop()
            if not done.calls:
                done.input, done.output = _shapes((args, kwargs)), _shapes(result)
            done.calls += 1
            return result

        return call

    def _add(self, flops: int) -> None:
        for around in set(self._running):
            around.flops += flops
        if self._running:
            self._running[-1].own_flops += flops

    def _new_bytes(self, tree: Any) -> int:
        """The bytes of the memory of tensors that no call before had."""
        made = 0
        for t in pytree.tree_leaves(tree):
            if not isinstance(t, Tensor) or is_without_shape(t):
                continue
            array = _owner(t)
            memory = getattr(array, "memory", array)  # of a device; views have the same
            known = self._memory.get(id(memory), _nothing)()  # an id is another's once its object is gone
            if known is None or getattr(known, "memory", known) is not memory:
                made += getattr(array, "nbytes", t.nbytes)
            self._memory[id(memory)] = weakref.ref(array)
        return made


def _nothing() -> None:
    """Stands for a reference whose object is gone."""


def _owner(t: Any) -> Any:
    """The array that has the memory of a tensor."""
    array = t._array
    while isinstance(array, Nested):
        array = array.tensor._array
    while isinstance(getattr(array, "base", None), np.ndarray):
        array = array.base
    return array


def _shapes(tree: Any) -> str:
    return ", ".join(str(leaf.shape) for leaf in pytree.tree_leaves(tree) if isinstance(leaf, Tensor | np.ndarray))
