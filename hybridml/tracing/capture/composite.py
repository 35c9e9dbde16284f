"""Elementwise functions of the library that a trace holds as one operation: an optimizer's update of a parameter.

A model has hundreds of parameters, and their updates are one function. It is captured once for a data type, over
numbers; a call of it is then one operation of the graph (ops/composite.py) instead of ten.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from hybridml_compiler.aval import Aval
from hybridml_compiler.graph import ir
from hybridml_compiler.graph.body import Body, body_of
from hybridml_compiler.ops.composite import COMPOSITE

from ...core.context import current_interpreter, grad_is_off
from ...core.tensor import Tensor
from .tracer import Tracer


class Composite:
    """A function of tensors to one, which is elementwise and computed from its arguments alone.

    Called by a trace it is one operation, of the same bits; everywhere else its operations one by one. So it is with a
    history to record, of tensors of several types or of narrow ones, whose operations round to them, and where somebody
    asks for the values of its variables.
    """

    def __init__(self, fn: Callable[..., Tensor]) -> None:
        functools.update_wrapper(self, fn)
        self.fn = fn
        self.bodies: dict[np.dtype, Body] = {}

    @property
    def here(self) -> Callable[..., Tensor]:
        """The function for many calls at one place: bare where nothing is traced."""
        return self.fn if current_interpreter() is None else self

    def __call__(self, *tensors: Tensor) -> Tensor:
        tracer = current_interpreter()
        if type(tracer) is not Tracer or tracer.observer is not None or not grad_is_off():
            return self.fn(*tensors)
        dtype = tensors[0].dtype
        if dtype.kind != "f" or dtype.itemsize < 4 or any([t.dtype is not dtype for t in tensors]):
            return self.fn(*tensors)
        lifted = [tracer.lift(t) for t in tensors]
        if any([t._array.aval.weak for t in lifted]):
            return self.fn(*tensors)
        body = self.bodies.get(dtype)
        if body is None:
            body = self.bodies[dtype] = _captured(self.fn, dtype, len(tensors))
        return tracer.emit(COMPOSITE, lifted, {"body": body})


def _captured(fn: Callable[..., Tensor], dtype: np.dtype, count: int) -> Body:
    tracer = Tracer(fn.__name__)
    inputs = tuple([ir.input_node(Aval((), dtype), name) for name in fn.__code__.co_varnames[:count]])
    made: Any = tracer.run(lambda: fn(*map(tracer.wrap, inputs)))
    graph = ir.Graph(inputs, (made._array,), fn.__name__)
    for node in graph.nodes():
        node.where = ""  # of whoever came first: each call has the line of its own
    return body_of(graph)
