"""Checkpointing: a part of a program keeps nothing for its gradient but its arguments, and is computed again for it.

The history of such a part is one node. When the engine comes to it, the function runs again and is recorded; the
cotangent goes on through that history, which leads to the same parents as the first would have. In a traced program
both runs would be the same nodes of the graph: the second one reads its arguments through `after`, which ties them to
the cotangent, so that it is neither the first one again nor done before it is needed.

The method is that of Chen et al., "Training deep nets with sublinear memory cost" (2016).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any

from hybridml_compiler.errors import DTypeError
from hybridml_compiler.ops.table import OPS

from ..core.autodiff.replay import Recording, Replay, drawing_from, runs_again
from ..core.autodiff.tape import Node, boundary, kept_by, make_node, part, stale
from ..core.context import clock, current_interpreter, enable_grad, grad_is_off, no_grad
from ..core.device_tensor import transfer
from ..core.nested import is_eager
from ..core.precision.autocast import Autocast, under_autocast
from ..core.pytree import tree_leaves, tree_map
from ..core.shared import generator_states
from ..core.source_location import here
from ..core.tensor import Device, Tensor, like, place_var

# Makers of the blocks in which what is checkpointed now is to be computed again.
recomputed_in: ContextVar[tuple[Callable[[], Any], ...]] = ContextVar("hybridml_recomputed_in", default=())

_after, _reshape, _slice = OPS["after"], OPS["reshape"], OPS["slice"]


def checkpoint(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """Runs `function(*args, **kwargs)`, a tensor or a tuple of them, keeping its arguments alone for `backward`.

    What the function computes on the way is computed again when its gradient is needed, with the same random numbers:
    memory for time. Parameters that it reads get their gradients all the same; in traced functions, only what is
    computed from its arguments is computed again. State that it updates, as statistics of a normalisation, is updated
    twice. Raises DTypeError if the result is neither a tensor nor a tuple of tensors, and GradientError in
    `backward` if an argument has been written to since.

    >>> import hybridml as hm
    >>> x = hm.tensor([0.5], requires_grad=True)
    >>> y = hm.checkpoint(lambda x: hm.exp(hm.sin(x)), x)
    >>> y.backward()
    >>> bool(x.grad == hm.cos(hm.tensor([0.5])) * y)
    True
    """
    if grad_is_off():
        return function(*args, **kwargs)
    interpreter, start = current_interpreter(), clock()
    recording = Recording() if is_eager() else None
    changed = list if interpreter is None else interpreter.watch(list(generator_states.values()))
    outer = runs_again.set(True)
    try:
        with nullcontext() if recording is None else drawing_from(recording):
            result = function(*args, **kwargs)
    finally:
        runs_again.reset(outer)
    if type(interpreter) is Autocast:  # in force when it is computed again as well
        function = under_autocast(function, interpreter.dtype)
    draws = recording, changed()
    outs = _results(function, result)
    parents = boundary([out._node for out in outs if out._node is not None], start)
    blocks = recomputed_in.get()
    joint = make_node(_pull, None, parents, function, args, kwargs, draws, blocks, Device(place_var.get()), here())
    kept = [
        like(out, out._array, None if out._node is None else part(joint, k, out.shape), out._version)
        for k, out in enumerate(outs)
    ]
    return kept[0] if isinstance(result, Tensor) else tuple(kept)


def _results(function: Callable[..., Any], result: Any) -> tuple[Tensor, ...]:
    outs = (result,) if isinstance(result, Tensor) else result
    if not isinstance(outs, tuple) or not all(isinstance(out, Tensor) for out in outs):
        name = getattr(function, "__name__", type(function).__name__)
        raise DTypeError(f"checkpoint: {name} must return a tensor or a tuple of tensors, got {type(result).__name__}")
    return outs


def _pull(bundle: dict[int, Tensor], node: Node) -> list[tuple[Any, Tensor]]:
    function, args, kwargs, draws, blocks, device, place = kept_by(node)
    for k, leaf in enumerate(tree_leaves((args, kwargs))):
        if isinstance(leaf, Tensor) and leaf._version:
            stale("checkpoint", f"argument {k}", leaf._version, node, place)
    recording, states = draws
    with enable_grad(), nullcontext() if recording is None else drawing_from(Replay(recording)), _set_back(states):
        if current_interpreter() is not None:
            args, kwargs = _tied((args, kwargs), next(iter(bundle.values())))
        with device, ExitStack() as around:
            for block in blocks:
                around.enter_context(block())
            result = function(*args, **kwargs)
    outs = _results(function, result)
    return [(outs[k]._node, g) for k, g in bundle.items()]


@contextmanager
def _set_back(states: Sequence[tuple[Tensor, Tensor]]) -> Iterator[None]:
    """A context in which generators go on from other states, in a program that is traced or inside of `vmap`."""
    outer = [state.clone() for state, _ in states]
    with no_grad():
        for state, before in states:
            state.copy_(before)
    yield
    with no_grad():
        for (state, _), after in zip(states, outer, strict=True):
            state.copy_(after)


def _tied(given: Any, g: Tensor) -> Any:
    """The arguments, tied to the cotangent: they are there once it is."""
    if not g.numel():
        return given
    first = _slice.fn(g, starts=(0,) * g.ndim, stops=(1,) * g.ndim, steps=(1,) * g.ndim) if g.ndim else g
    token = _reshape.fn(first, ())

    def tied(leaf: Any) -> Any:
        return _after.fn(leaf, transfer(token, leaf.device.type)) if isinstance(leaf, Tensor) else leaf

    return tree_map(tied, given)
