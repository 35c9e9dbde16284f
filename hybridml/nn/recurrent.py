"""LSTM, GRU and RNN, whole sequences and single steps, with PyTorch's parameters, names and gate order."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hybridml_compiler.errors import ArgumentError, ShapeError

from .. import arrays as xp
from .. import functional as F
from ..core.context import placed
from ..core.tensor import Tensor
from ..functional.recurrent import gru_sequence, lstm_sequence, rnn_sequence
from . import init
from .module import Module
from .parameter import Parameter
from .utils.rnn import PackedSequence, lengths_of, packed_like, unpacked

State = tuple[Tensor, ...]
Parameters = tuple[Tensor, Tensor, Tensor | None, Tensor | None]  # of the input, of the state, their biases


class _Recurrent(Module):
    """The parameters of `num_layers` layers in one or two directions, and the walk over them."""

    gates: int  # sums a unit
    states: int  # tensors that go from step to step

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        *,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        if min(input_size, hidden_size, num_layers) < 1:
            raise ArgumentError(
                f"{type(self).__name__}: input_size={input_size}, hidden_size={hidden_size} and "
                f"num_layers={num_layers} must be at least 1"
            )
        if not 0 <= dropout <= 1:
            raise ArgumentError(f"{type(self).__name__}: dropout is a probability, 0 <= dropout <= 1, got {dropout}")
        self.input_size, self.hidden_size, self.num_layers = input_size, hidden_size, num_layers
        self.bias, self.batch_first, self.dropout, self.bidirectional = bias, batch_first, dropout, bidirectional
        self.directions = 2 if bidirectional else 1
        for layer in range(num_layers):
            width = input_size if layer == 0 else hidden_size * self.directions
            for direction in range(self.directions):
                _register(self, self.gates * hidden_size, width, hidden_size, bias, _suffix(layer, direction))
        self.reset_parameters()
        self._draw_in(dtype)

    def reset_parameters(self) -> None:
        """Everything uniform within ``1 / sqrt(hidden_size)``."""
        _uniform(self, self.hidden_size)

    def _sequence(self, x: Tensor, first: State, parameters: Parameters) -> State:
        """The states after every step, each (steps, n, hidden)."""
        raise NotImplementedError(f"{type(self).__name__} has no _sequence method")

    @placed
    def _run(self, input: Any, states: State | None) -> tuple[Any, State]:
        if isinstance(input, PackedSequence):
            return self._packed(input, states)
        name = type(self).__name__
        if input.ndim not in (2, 3) or input.shape[-1] != self.input_size or 0 in input.shape:
            order = "(n, steps, input_size)" if self.batch_first else "(steps, n, input_size)"
            raise ShapeError(
                f"{name}: input must be {order} or (steps, input_size) with input_size={self.input_size} and at least "
                f"one step, got shape {input.shape}"
            )
        single = input.ndim == 2
        x = input[:, None] if single else xp.swapaxes(input, 0, 1) if self.batch_first else input
        count = self.num_layers * self.directions
        shape = (count, self.hidden_size) if single else (count, x.shape[1], self.hidden_size)
        if states is None:
            states = (xp.zeros(shape, dtype=x.dtype),) * self.states
        _check(name, states, self.states, shape)
        states = tuple(state[:, None] for state in states) if single else states
        x, finals = self._layers(x, states)
        if single:
            return x[:, 0], tuple(final[:, 0] for final in finals)
        return (xp.swapaxes(x, 0, 1) if self.batch_first else x), finals

    def _packed(self, input: PackedSequence, states: State | None) -> tuple[PackedSequence, State]:
        """Runs over padded sequences, from long to short; nothing is read of the steps of padding."""
        lengths = lengths_of(input)
        x = unpacked(input, int(lengths[0]))
        shape = (self.num_layers * self.directions, x.shape[1], self.hidden_size)
        if x.ndim != 3 or x.shape[-1] != self.input_size:
            raise ShapeError(
                f"{type(self).__name__}: packed data must be (sum of lengths, input_size) with "
                f"input_size={self.input_size}, got shape {input.data.shape}"
            )
        if states is None:
            states = (xp.zeros(shape, dtype=x.dtype),) * self.states
        _check(type(self).__name__, states, self.states, shape)
        if input.sorted_indices is not None:
            states = tuple(state[:, input.sorted_indices] for state in states)
        output, finals = self._layers(x, states, lengths)
        if input.unsorted_indices is not None:
            finals = tuple(final[:, input.unsorted_indices] for final in finals)
        return packed_like(output, input), finals

    def _layers(self, x: Tensor, states: State, lengths: np.ndarray | None = None) -> tuple[Tensor, State]:
        """The states of the last layer after each step, and those of all at the end of the sequences."""
        last: list[State] = []
        for layer in range(self.num_layers):
            if layer and self.dropout:
                x = F.dropout(x, self.dropout, self.training)
            outputs = []
            for direction in range(self.directions):
                first = tuple(state[len(last)] for state in states)
                output, final = self._direction(x, first, layer, direction, lengths)
                outputs.append(output)
                last.append(final)
            x = outputs[0] if len(outputs) == 1 else xp.concat(outputs, axis=-1)
        return x, tuple(xp.stack(list(parts)) for parts in zip(*last, strict=True))

    def _direction(
        self, x: Tensor, first: State, layer: int, direction: int, lengths: np.ndarray | None
    ) -> tuple[Tensor, State]:
        x = _turned(x, lengths) if direction else x
        states = self._sequence(x, first, _parameters(self, _suffix(layer, direction)))
        output = _turned(states[0], lengths) if direction else states[0]
        if lengths is None:
            return output, tuple(state[-1] for state in states)
        ends = xp.asarray(lengths - 1), xp.arange(len(lengths))
        return output, tuple(state[ends] for state in states)

    def extra_repr(self) -> str:
        text = f"{self.input_size}, {self.hidden_size}"
        for name, default in (("num_layers", 1), ("bias", True), ("batch_first", False), ("dropout", 0.0)):
            if getattr(self, name) != default:
                text += f", {name}={getattr(self, name)}"
        return text + (", bidirectional=True" if self.bidirectional else "")


def _turned(x: Tensor, lengths: np.ndarray | None) -> Tensor:
    """Sequences (steps, n, ...) from their ends on; of given lengths, padding stays where it is."""
    if lengths is None:
        return xp.flip(x, axis=0)
    steps = np.arange(x.shape[0])[:, None]
    return x[xp.asarray(np.where(steps < lengths, lengths - 1 - steps, steps)), xp.arange(len(lengths))]


def _linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Linear map of all steps as one matrix: with `batch_first` each step has rows far apart, which are read slower
    than a copy, which the gradient of the weight needs anyway ([Note: Memory order])."""
    return F.linear(x.reshape((-1, x.shape[-1])), weight, bias).reshape((*x.shape[:-1], weight.shape[0]))


class LSTM(_Recurrent):
    """Long short-term memory over sequences (Hochreiter and Schmidhuber 1997).

    ``lstm(x)`` or ``lstm(x, (h, c))`` returns ``(output, (h, c))``. x is (steps, n, input_size), with `batch_first`
    (n, steps, input_size), or (steps, input_size) without a batch. output (steps, n, directions * hidden_size) are the
    hidden states of the last layer; h and c (num_layers * directions, n, hidden_size) are the states at the end.
    A `utils.rnn.PackedSequence` of sequences of several lengths is taken in place of x, and output is one then.
    `dropout` acts between layers. Gates are in the order input, forget, cell, output. Raises ArgumentError for sizes
    below 1 or a `dropout` that is no probability, ShapeError for an input or states that do not fit.

    >>> output, (h, c) = LSTM(4, 3, num_layers=2)(hm.ones((5, 2, 4)))
    >>> output.shape, h.shape, c.shape
    ((5, 2, 3), (2, 2, 3), (2, 2, 3))
    """

    gates, states = 4, 2

    def forward(self, input: Any, hx: tuple[Tensor, Tensor] | None = None) -> tuple[Any, tuple[Tensor, Tensor]]:
        output, (h, c) = self._run(input, hx)
        return output, (h, c)

    def _sequence(self, x: Tensor, first: State, parameters: Parameters) -> State:
        w_in, w_h, b_in, b_h = parameters
        bias = None if b_in is None or b_h is None else b_in + b_h
        h, c = first
        return lstm_sequence(_linear(x, w_in, bias), h, c, w_h)


class GRU(_Recurrent):
    """Gated recurrent units over sequences (Cho et al. 2014).

    ``gru(x)`` or ``gru(x, h)`` returns ``(output, h)``; x (steps, n, input_size), output and h, the other arguments
    and errors are as in `LSTM`. Gates are in the order reset, update, new; reset is applied after the product with the
    state, as in PyTorch.

    >>> output, h = GRU(4, 3, bidirectional=True)(hm.ones((5, 2, 4)))
    >>> output.shape, h.shape
    ((5, 2, 6), (2, 2, 3))
    """

    gates, states = 3, 1

    def forward(self, input: Any, hx: Tensor | None = None) -> tuple[Any, Tensor]:
        output, (h,) = self._run(input, None if hx is None else (hx,))
        return output, h

    def _sequence(self, x: Tensor, first: State, parameters: Parameters) -> State:
        w_in, w_h, b_in, b_h = parameters
        (h,) = first
        return (gru_sequence(F.linear(x, w_in, b_in), h, w_h, b_h),)


class RNN(_Recurrent):
    """Recurrent layers ``h' = tanh(w_ih x + b_ih + w_hh h + b_hh)`` over sequences (Elman 1990).

    ``rnn(x)`` or ``rnn(x, h)`` returns ``(output, h)``; x (steps, n, input_size), output and h, the other arguments
    and errors are as in `LSTM`. `nonlinearity` is "tanh" or "relu" (ArgumentError for others).

    >>> output, h = RNN(4, 3, nonlinearity="relu")(hm.ones((5, 2, 4)))
    >>> output.shape, h.shape
    ((5, 2, 3), (1, 2, 3))
    """

    gates, states = 1, 1

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: str = "tanh",
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        *,
        dtype: Any = None,
    ) -> None:
        self.nonlinearity = _nonlinearity("RNN", nonlinearity)
        super().__init__(input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, dtype=dtype)

    def forward(self, input: Any, hx: Tensor | None = None) -> tuple[Any, Tensor]:
        output, (h,) = self._run(input, None if hx is None else (hx,))
        return output, h

    def _sequence(self, x: Tensor, first: State, parameters: Parameters) -> State:
        w_in, w_h, b_in, b_h = parameters
        bias = None if b_in is None or b_h is None else b_in + b_h
        return (rnn_sequence(_linear(x, w_in, bias), first[0], w_h, self.nonlinearity),)

    def extra_repr(self) -> str:
        return super().extra_repr() + ("" if self.nonlinearity == "tanh" else f", nonlinearity={self.nonlinearity!r}")


def _nonlinearity(name: str, nonlinearity: str) -> str:
    if nonlinearity not in ("tanh", "relu"):
        raise ArgumentError(f'{name}: nonlinearity must be "tanh" or "relu", got {nonlinearity!r}')
    return nonlinearity


class _Cell(Module):
    """Single step of a recurrent layer, computed as a sequence of length one."""

    gates: int

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True, *, dtype: Any = None) -> None:
        super().__init__()
        self.input_size, self.hidden_size, self.bias = input_size, hidden_size, bias
        _register(self, self.gates * hidden_size, input_size, hidden_size, bias, "")
        self.reset_parameters()
        self._draw_in(dtype)

    def reset_parameters(self) -> None:
        """Everything uniform within ``1 / sqrt(hidden_size)``."""
        _uniform(self, self.hidden_size)

    @placed
    def _start(self, input: Tensor, states: State | None, count: int) -> State:
        """States for `input`: those that were given, or zeros."""
        if input.ndim not in (1, 2) or input.shape[-1] != self.input_size:
            raise ShapeError(
                f"{type(self).__name__}: input must be (n, input_size) or (input_size,) with "
                f"input_size={self.input_size}, got shape {input.shape}"
            )
        shape = (*input.shape[:-1], self.hidden_size)
        states = (xp.zeros(shape, dtype=input.dtype),) * count if states is None else states
        _check(type(self).__name__, states, count, shape)
        return tuple(state[None] for state in states) if input.ndim == 1 else states

    def extra_repr(self) -> str:
        return f"{self.input_size}, {self.hidden_size}" + ("" if self.bias else ", bias=False")


class LSTMCell(_Cell):
    """One step of an `LSTM`: x (n, input_size) and (h, c), both (n, hidden_size), -> the next (h, c).

    All are also without n; states that are not given are zeros. Raises ShapeError for an input or states of other
    shapes.

    >>> h, c = LSTMCell(4, 3)(hm.ones((2, 4)))
    >>> h.shape, c.shape
    ((2, 3), (2, 3))
    """

    gates = 4

    def forward(self, input: Tensor, hx: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor]:
        h, c = self._start(input, hx, 2)
        w_in, w_h, b_in, b_h = _parameters(self, "")
        bias = None if b_in is None or b_h is None else b_in + b_h
        h, c = lstm_sequence(F.linear(input.reshape((1, -1, self.input_size)), w_in, bias), h, c, w_h)
        return (h[0, 0], c[0, 0]) if input.ndim == 1 else (h[0], c[0])


class GRUCell(_Cell):
    """One step of a `GRU`: x (n, input_size) and h (n, hidden_size) -> the next h.

    All are also without n; a state that is not given is zero. Raises ShapeError for an input or a state of another
    shape.

    >>> GRUCell(4, 3)(hm.ones((2, 4))).shape
    (2, 3)
    """

    gates = 3

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        (h,) = self._start(input, None if hx is None else (hx,), 1)
        w_in, w_h, b_in, b_h = _parameters(self, "")
        h = gru_sequence(F.linear(input.reshape((1, -1, self.input_size)), w_in, b_in), h, w_h, b_h)
        return h[0, 0] if input.ndim == 1 else h[0]


class RNNCell(_Cell):
    """One step of an `RNN`: x (n, input_size) and h (n, hidden_size) -> the next h.

    All are also without n; a state that is not given is zero. Raises ShapeError for an input or a state of another
    shape, ArgumentError for a `nonlinearity` other than "tanh" and "relu".

    >>> RNNCell(4, 3)(hm.ones((2, 4))).shape
    (2, 3)
    """

    gates = 1

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, nonlinearity: str = "tanh", *, dtype: Any = None
    ) -> None:
        self.nonlinearity = _nonlinearity("RNNCell", nonlinearity)
        super().__init__(input_size, hidden_size, bias, dtype=dtype)

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        (h,) = self._start(input, None if hx is None else (hx,), 1)
        w_in, w_h, b_in, b_h = _parameters(self, "")
        bias = None if b_in is None or b_h is None else b_in + b_h
        h = rnn_sequence(F.linear(input.reshape((1, -1, self.input_size)), w_in, bias), h, w_h, self.nonlinearity)
        return h[0, 0] if input.ndim == 1 else h[0]


def _check(name: str, states: Any, count: int, shape: tuple[int, ...]) -> None:
    """Raises an error unless these are states that a layer can go on from."""
    if not isinstance(states, tuple | list) or len(states) != count or not all(hasattr(s, "shape") for s in states):
        wanted = "one tensor h" if count == 1 else "a tuple (h, c) of tensors"
        raise ArgumentError(f"{name}: hx must be {wanted} of shape {shape}")
    for state in states:
        if state.shape != shape:
            raise ShapeError(f"{name}: a first state must have shape {shape}, got {state.shape}")


def _suffix(layer: int, direction: int) -> str:
    """PyTorch's ending of a parameter's name: ``_l0``, ``_l0_reverse``."""
    return f"_l{layer}" + ("_reverse" if direction else "")


def _register(module: Module, rows: int, width: int, hidden: int, bias: bool, suffix: str) -> None:
    for name, shape in (("weight_ih", (rows, width)), ("weight_hh", (rows, hidden))):
        module.register_parameter(name + suffix, Parameter(xp.empty(shape)))
    for name in ("bias_ih", "bias_hh"):
        if bias:
            module.register_parameter(name + suffix, Parameter(xp.empty((rows,))))


def _parameters(module: Module, suffix: str) -> Parameters:
    names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    w_in, w_h, b_in, b_h = (getattr(module, name + suffix, None) for name in names)
    return w_in, w_h, b_in, b_h  # type: ignore[return-value]  # the weights are always there


def _uniform(module: Module, hidden: int) -> None:
    bound = 1 / math.sqrt(hidden)
    for parameter in module.parameters():
        init.uniform_(parameter, -bound, bound)


__all__ = ["GRU", "LSTM", "RNN", "GRUCell", "LSTMCell", "RNNCell"]
