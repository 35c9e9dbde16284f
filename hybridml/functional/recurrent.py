"""Recurrent sequences, each one step of the history: LSTM (Hochreiter and Schmidhuber 1997), GRU (Cho et al. 2014) and
RNN (Elman 1990).

Only ``state @ weight.T`` has to wait for the step before. What does not wait is done for all steps at once: the
products with the inputs before the sequence, the gradient of the recurrent weight after it. Recorded step by step, that
gradient would be one small product and one addition to the whole weight for every step.

The backward passes are framework operations on arguments and results, so they can be differentiated again: every value
that they need is a result of the forward pass, and takes a gradient of its own. A sequence is a `scan` either way, one
native loop in a traced program, which compiles in the time of one step. A large one is such a loop in eager code too: a
composite of all steps, whose programs take sequences of any length.
"""

from __future__ import annotations

from typing import Any

from .. import arrays as xp
from ..autograd import Function
from ..control_flow import scan
from ..core.context import placed
from ..core.library import compiled_for_all_sizes
from ..core.tensor import Tensor


def lstm_sequence(inputs: Tensor, h: Tensor, c: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Runs an LSTM over `inputs` (steps, n, 4 * hidden), the products with the inputs and the biases already in it.

    `h` and `c` (n, hidden) are the first states, `weight` (4 * hidden, hidden) is the recurrent one; gates are in the
    order input, forget, cell, output. Gives the hidden and the cell states after each step, both (steps, n, hidden).

    >>> h, c = lstm_sequence(hm.ones((5, 2, 12)), hm.zeros((2, 3)), hm.zeros((2, 3)), hm.ones((12, 3)))
    >>> h.shape, c.shape
    ((5, 2, 3), (5, 2, 3))
    """
    dtype = xp.result_type(inputs, h, c, weight)
    hidden, cells, _ = _LSTM.apply(inputs, _cast(h, dtype), _cast(c, dtype), weight)
    return hidden, cells


@placed
def gru_sequence(inputs: Tensor, h: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Runs a GRU over `inputs` (steps, n, 3 * hidden), the products with the inputs and their biases already in it.

    `h` (n, hidden) is the first state, `weight` (3 * hidden, hidden) and `bias` (3 * hidden,) are the recurrent ones;
    gates are in the order reset, update, new, and reset is applied after the product, as in PyTorch. Gives the state
    after each step, (steps, n, hidden).

    >>> gru_sequence(hm.ones((5, 2, 9)), hm.zeros((2, 3)), hm.ones((9, 3)), None).shape
    (5, 2, 3)
    """
    if bias is None:
        bias = xp.zeros((weight.shape[0],), dtype=weight.dtype)
    hidden, _ = _GRU.apply(inputs, _cast(h, xp.result_type(inputs, h, weight, bias)), weight, bias)
    return hidden


def rnn_sequence(inputs: Tensor, h: Tensor, weight: Tensor, nonlinearity: str) -> Tensor:
    """Runs an RNN over `inputs` (steps, n, hidden), the products with the inputs and both biases already in it.

    `h` (n, hidden) is the first state, `weight` (hidden, hidden) the recurrent one, `nonlinearity` "tanh" or "relu".
    Gives the state after each step, (steps, n, hidden).

    >>> rnn_sequence(hm.ones((5, 2, 3)), hm.zeros((2, 3)), hm.ones((3, 3)), "relu").shape
    (5, 2, 3)
    """
    return _RNN.apply(inputs, _cast(h, xp.result_type(inputs, h, weight)), weight, nonlinearity == "relu")


def _cast(state: Tensor, dtype: Any) -> Tensor:
    """A first state in the dtype of the states after it."""
    return xp.astype(state, dtype, copy=False)


def _earlier(first: Tensor, states: Tensor) -> Tensor:
    """The states before each step."""
    return xp.concat([first[None], states[:-1]], axis=0)


def _flat(x: Tensor) -> Tensor:
    """(steps, n, width) -> (steps * n, width)."""
    return x.reshape((-1, x.shape[-1]))


def _over_steps(x: Tensor, y: Tensor) -> Tensor:
    """The gradient of the recurrent weight. By itself, for the sizes of the call: in a program for all lengths it would
    be BLAS's, of other bits than in one for these sizes."""
    return xp.matmul(_flat(x).mT, _flat(y))


# -- LSTM


def _lstm_cell(inputs: Tensor, product: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The state, the cell and the gates (n, 4 * hidden) after a step."""
    i, f, g, o = xp.chunk(inputs + product, 4, axis=1)
    i, f, g, o = xp.sigmoid(i), xp.sigmoid(f), xp.tanh(g), xp.sigmoid(o)
    c = f * c + i * g
    return o * xp.tanh(c), c, xp.concat([i, f, g, o], axis=1)


def _lstm_cell_back(
    gates: Tensor, before: Tensor, c: Tensor, dh: Tensor, dc: Tensor, d_gates: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Gradients of the four sums (n, 4 * hidden) and of the cell before the step."""
    i, f, g, o = xp.chunk(gates, 4, axis=1)
    t = xp.tanh(c)
    dc = dc + dh * o * (1 - t * t)
    d = [dc * g, dc * before, dc * i, dh * t]
    if d_gates is not None:
        d = [x + more for x, more in zip(d, xp.chunk(d_gates, 4, axis=1), strict=True)]
    d = [d[0] * i * (1 - i), d[1] * f * (1 - f), d[2] * (1 - g * g), d[3] * o * (1 - o)]
    return xp.concat(d, axis=1), dc * f


@compiled_for_all_sizes
def _lstm_steps(inputs: Tensor, h: Tensor, c: Tensor, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The states, the cells and the gates after each step."""
    transposed = weight.mT

    def step(state: tuple[Tensor, Tensor], x: Tensor) -> Any:
        h, c, gates = _lstm_cell(x, xp.matmul(state[0], transposed), state[1])
        return (h, c), (h, c, gates)

    results: tuple[Tensor, Tensor, Tensor] = scan(step, (h, c), inputs)[1]
    return results


@compiled_for_all_sizes
def _lstm_steps_back(
    first_h: Tensor,
    first_c: Tensor,
    weight: Tensor,
    cells: Tensor,
    gates: Tensor,
    d_hidden: Tensor | None,
    d_cells: Tensor | None,
    d_gates: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of the inputs, of the first state and cell."""

    def step(after: tuple[Tensor, Tensor], slices: Any) -> Any:
        (dh, dc), (gate, before, c, d_h, d_c, d_gate) = after, slices
        dh, dc = dh if d_h is None else dh + d_h, dc if d_c is None else dc + d_c
        d, dc = _lstm_cell_back(gate, before, c, dh, dc, d_gate)
        return (xp.matmul(d, weight), dc), d

    start = xp.zeros_like(first_h), xp.zeros_like(first_c)
    slices = gates, _earlier(first_c, cells), cells, d_hidden, d_cells, d_gates
    (dh, dc), d_inputs = scan(step, start, slices, reverse=True)
    return d_inputs, dh, dc


class _LSTM(Function):
    is_composite = True

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, h: Tensor, c: Tensor, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        results = _lstm_steps(inputs, h, c, weight)
        ctx.save_for_backward(h, c, weight, *results)
        ctx.set_materialize_grads(False)
        return results

    @staticmethod
    def backward(
        ctx: Any, d_hidden: Tensor | None, d_cells: Tensor | None, d_gates: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        h, c, weight, hidden, cells, gates = ctx.saved_tensors
        d_inputs, dh, dc = _lstm_steps_back(h, c, weight, cells, gates, d_hidden, d_cells, d_gates)
        return d_inputs, dh, dc, _over_steps(d_inputs, _earlier(h, hidden))


# -- GRU


def _gru_cell(inputs: Tensor, product: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
    """The state and (reset, update, new, the new gate's product) (n, 4 * hidden) after a step."""
    (xr, xz, xn), (pr, pz, pn) = xp.chunk(inputs, 3, axis=1), xp.chunk(product, 3, axis=1)
    r, z = xp.sigmoid(xr + pr), xp.sigmoid(xz + pz)
    new = xp.tanh(xn + r * pn)
    return (1 - z) * new + z * h, xp.concat([r, z, new, pn], axis=1)


def _gru_cell_back(gates: Tensor, before: Tensor, dh: Tensor, d_gates: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of the inputs and of the product (n, 3 * hidden), and what passes by it to the state."""
    r, z, new, p = xp.chunk(gates, 4, axis=1)
    more = (0.0,) * 4 if d_gates is None else xp.chunk(d_gates, 4, axis=1)
    d_new = (dh * (1 - z) + more[2]) * (1 - new * new)
    d_reset = (d_new * p + more[0]) * r * (1 - r)
    d_update = (dh * (before - new) + more[1]) * z * (1 - z)
    d_product = d_new * r + more[3]
    return xp.concat([d_reset, d_update, d_new], axis=1), xp.concat([d_reset, d_update, d_product], axis=1), dh * z


@compiled_for_all_sizes
def _gru_steps(inputs: Tensor, h: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """The states and the gates after each step."""
    transposed = weight.mT

    def step(state: Tensor, x: Tensor) -> Any:
        state, gates = _gru_cell(x, xp.matmul(state, transposed) + bias, state)
        return state, (state, gates)

    results: tuple[Tensor, Tensor] = scan(step, h, inputs)[1]
    return results


@compiled_for_all_sizes
def _gru_steps_back(
    first: Tensor, weight: Tensor, hidden: Tensor, gates: Tensor, d_hidden: Tensor | None, d_gates: Tensor | None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of the inputs, of the first state, of the products and of the bias."""

    def step(dh: Tensor, slices: Any) -> Any:
        gate, before, d_h, d_gate = slices
        d_input, d, past = _gru_cell_back(gate, before, dh if d_h is None else dh + d_h, d_gate)
        return past + xp.matmul(d, weight), (d_input, d)

    slices = gates, _earlier(first, hidden), d_hidden, d_gates
    dh, (d_inputs, d_products) = scan(step, xp.zeros_like(first), slices, reverse=True)
    return d_inputs, dh, d_products, _flat(d_products).sum(axis=0)


class _GRU(Function):
    is_composite = True

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, h: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
        results = _gru_steps(inputs, h, weight, bias)
        ctx.save_for_backward(h, weight, *results)
        ctx.set_materialize_grads(False)
        return results

    @staticmethod
    def backward(ctx: Any, d_hidden: Tensor | None, d_gates: Tensor | None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        first, weight, hidden, gates = ctx.saved_tensors
        d_inputs, dh, d_products, d_bias = _gru_steps_back(first, weight, hidden, gates, d_hidden, d_gates)
        return d_inputs, dh, _over_steps(d_products, _earlier(first, hidden)), d_bias


# -- RNN


@compiled_for_all_sizes
def _rnn_steps(inputs: Tensor, h: Tensor, weight: Tensor, rectified: bool) -> Tensor:
    """The states after each step."""
    transposed = weight.mT

    def step(state: Tensor, x: Tensor) -> Any:
        total = x + xp.matmul(state, transposed)
        state = xp.maximum(total, 0.0) if rectified else xp.tanh(total)
        return state, state

    states: Tensor = scan(step, h, inputs)[1]
    return states


@compiled_for_all_sizes
def _rnn_steps_back(first: Tensor, weight: Tensor, hidden: Tensor, d_hidden: Tensor, rectified: bool) -> Any:
    """Gradients of the inputs and of the first state."""

    def step(dh: Tensor, slices: Any) -> Any:
        state, d_h = slices
        d = dh + d_h
        d = xp.where(state > 0, d, 0.0) if rectified else d * (1 - state * state)
        return xp.matmul(d, weight), d

    dh, d_inputs = scan(step, xp.zeros_like(first), (hidden, d_hidden), reverse=True)
    return d_inputs, dh


class _RNN(Function):
    is_composite = True

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, h: Tensor, weight: Tensor, rectified: bool) -> Tensor:
        hidden = _rnn_steps(inputs, h, weight, rectified)
        ctx.save_for_backward(h, weight, hidden)
        ctx.rectified = rectified
        return hidden

    @staticmethod
    def backward(ctx: Any, d_hidden: Tensor) -> tuple[Tensor | None, ...]:
        first, weight, hidden = ctx.saved_tensors
        d_inputs, dh = _rnn_steps_back(first, weight, hidden, d_hidden, ctx.rectified)
        return d_inputs, dh, _over_steps(d_inputs, _earlier(first, hidden)), None
