"""Interpreters other than the tracer: each implements the protocol and nothing else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest

import hybridml as hm
from hybridml.core.eager import active_interpreter
from hybridml.core.interpreter import (  # fmt: skip
    Interpreter,
    Reading,
    below,
    eagerly,
    interpret,
    interpreter_stack,
    is_in_force,
)
from hybridml.core.tensor import Tensor
from hybridml_compiler.aval import Aval
from hybridml_compiler.ops.op import Op

MEMBERS = {name for name in vars(Interpreter) if not name.startswith("_")}


class Through:
    """An interpreter whose tensors are those beneath it, and which notes what is done to them."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def see(self, op: Op, operands: Sequence[Tensor]) -> None:
        self.seen.append(op.name)

    def lift(self, value: Tensor | np.ndarray) -> Tensor:
        return below(self, lambda: active_interpreter().lift(value))

    def constant(self, t: Tensor, weak: bool = False) -> Tensor:
        return below(self, lambda: active_interpreter().constant(t, weak))

    def apply(self, op: Op, operands: Sequence[Tensor], params: Mapping[str, Any]) -> tuple[Tensor, ...]:
        self.see(op, operands)
        return below(self, lambda: active_interpreter().apply(op, operands, params))

    def read(self, t: Tensor, how: Reading, what: str) -> Any:
        return below(self, lambda: active_interpreter().read(t, how, what))

    def write(self, t: Tensor, value: Tensor) -> None:
        below(self, lambda: active_interpreter().write(t, value))

    def layout(self, t: Tensor) -> np.ndarray:
        return below(self, lambda: active_interpreter().layout(t))

    def trust(self, t: Tensor) -> None:
        below(self, lambda: active_interpreter().trust(t))

    def watch(self, tensors: Iterable[Tensor]) -> Callable[[], list[tuple[Tensor, Tensor]]]:
        return below(self, lambda: active_interpreter().watch(tensors))


class Printing(Through):
    def see(self, op: Op, operands: Sequence[Tensor]) -> None:
        self.seen.append(f"{op.name}({', '.join(str(t.shape) for t in operands)})")


class Labelled(NamedTuple):
    """A value with the names of the tensors that it was computed from."""

    tensor: Tensor
    names: frozenset[str]

    @property
    def aval(self) -> Aval:
        return Aval(self.tensor.shape, self.tensor.dtype)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.tensor.shape

    @property
    def dtype(self) -> np.dtype:
        return self.tensor.dtype


class LabelledTensor(Tensor):
    __slots__ = ()


class Labels:
    """An interpreter with tensors of its own."""

    def wrap(self, tensor: Tensor, names: Iterable[str] = ()) -> Tensor:
        out = LabelledTensor()
        out._array, out._node, out._version = Labelled(tensor, frozenset(names)), None, 0
        return out

    def lift(self, value: Tensor | np.ndarray) -> Tensor:
        if isinstance(value, LabelledTensor):
            return value
        return self.wrap(below(self, lambda: active_interpreter().lift(value)))

    def constant(self, t: Tensor, weak: bool = False) -> Tensor:
        return self.wrap(t)

    def apply(self, op: Op, operands: Sequence[Tensor], params: Mapping[str, Any]) -> tuple[Tensor, ...]:
        inner = [t._array.tensor for t in operands]
        names = frozenset().union(*(t._array.names for t in operands))
        outs = below(self, lambda: active_interpreter().apply(op, inner, params))
        return tuple(self.wrap(out, names) for out in outs)

    def read(self, t: Tensor, how: Reading, what: str) -> Any:
        return below(self, lambda: active_interpreter().read(self.lift(t)._array.tensor, how, what))

    def write(self, t: Tensor, value: Tensor) -> None:
        t._array = value._array

    def layout(self, t: Tensor) -> np.ndarray:
        return below(self, lambda: active_interpreter().layout(t._array.tensor))

    def trust(self, t: Tensor) -> None:
        pass

    def watch(self, tensors: Iterable[Tensor]) -> Callable[[], list[tuple[Tensor, Tensor]]]:
        return lambda: []


def model() -> hm.nn.Module:
    hm.manual_seed(0)
    return hm.nn.Sequential(hm.nn.Linear(3, 4), hm.nn.Tanh(), hm.nn.LayerNorm(4), hm.nn.Linear(4, 2))


X = np.linspace(-1, 1, 6, dtype="f4").reshape(2, 3)


def loss(net: hm.nn.Module, x: Any) -> hm.Tensor:
    y = net(x)
    y[:, 0] *= 2  # a write through a view
    first, _ = hm.linalg.qr(y)  # several results
    picked = hm.take_along_axis(y, hm.argsort(y, axis=1), axis=1)
    return (picked * first.abs()).sum() + (1.0 if float(y.sum()) > 1e9 else 2.0)


def test_the_protocol_is_small_and_the_interpreters_here_have_nothing_more() -> None:
    assert len(MEMBERS) <= 10
    for cls, own in ((Through, {"see"}), (Labels, {"wrap"})):
        assert {name for name in vars(cls) if not name.startswith("_")} - own == MEMBERS


def gradients(net: hm.nn.Module) -> list[Any]:
    return [p.grad.tolist() for p in net.parameters()]


@pytest.mark.parametrize("levels", [1, 2])
def test_operations_of_a_model_pass_through_interpreters_forward_and_backward(levels: int) -> None:
    net = model()
    want = loss(net, hm.asarray(X))
    want.backward()
    expected = gradients(net)
    for p in net.parameters():
        p.grad = None
    stack: list[Through] = [Through(), Printing()][:levels]

    def run() -> hm.Tensor:
        out = loss(net, hm.asarray(X))
        out.backward()
        return out

    for interpreter in stack:
        run = (lambda inner, i: lambda: interpret(i, inner))(run, interpreter)
    got = run()
    assert interpreter_stack() is None
    assert type(got) is hm.Tensor
    np.testing.assert_allclose(got.item(), want.item(), rtol=1e-6)
    for ours, theirs in zip(gradients(net), expected, strict=True):  # library functions add up in another order
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-7)
    counts = Counter(stack[0].seen)
    assert counts["tanh"] == 1 and counts["qr"] == 1 and counts["matmul"] >= 2
    if levels == 2:
        assert len(stack[1].seen) == len(stack[0].seen)
        assert "tanh((2, 4))" in stack[1].seen


def test_an_interpreter_above_a_tracer_sees_what_is_traced() -> None:
    net, counting = model(), Through()
    f = hm.trace(lambda x: interpret(counting, lambda: net(x).tanh().sum()))
    want = net(hm.asarray(X)).tanh().sum()
    for _ in range(2):
        np.testing.assert_allclose(f(hm.asarray(X)).item(), want.item(), rtol=1e-6)
    assert Counter(counting.seen)["tanh"] == 2  # of the one capture
    assert f.cache_info().compiles == 1


def test_an_interpreter_may_have_tensors_of_its_own() -> None:
    labels = Labels()
    a, b = hm.tensor([1.0, 2.0]), hm.tensor([3.0, 4.0])

    def run() -> tuple[hm.Tensor, hm.Tensor, Any]:
        x, y = labels.wrap(a, "x"), labels.wrap(b, "y").requires_grad_()
        z = (x * y + 1).reshape(2, 1)[0]
        z.sum().backward()
        assert z.shape == (1,) and z.dtype is hm.float32 and float(z) == 4.0
        return z, x + 1, y.grad

    z, x, g = interpret(labels, run)
    assert z._array.names == {"x", "y"} and x._array.names == {"x"}
    assert g._array.tensor.tolist() == [1.0, 0.0] and g._array.names == {"x"}
    with pytest.raises(hm.TraceError, match="used after"):
        x + 1


def test_levels_come_and_go_with_the_calls() -> None:
    one, two = Through(), Through()

    def inside() -> None:
        assert is_in_force(one) and is_in_force(two)
        below(two, lambda: hm.ones((2,)) + 1)
        eagerly(lambda: hm.ones((2,)) + 1)
        with pytest.raises(ZeroDivisionError):
            below(one, lambda: 1 / 0)
        assert is_in_force(two)
        below(one, lambda: None)

    interpret(one, lambda: interpret(two, inside))
    assert not is_in_force(one) and interpreter_stack() is None
    assert not two.seen and one.seen[-1:] == ["add"]


def test_random_numbers_and_checkpoints_are_those_of_eager_code() -> None:
    def program() -> list[Any]:
        hm.manual_seed(3)
        x = hm.ones((4,), requires_grad=True)
        y = hm.checkpoint(lambda x: x * hm.random.uniform((4,)), x)
        y.sum().backward()
        return [y.tolist(), x.grad.tolist(), hm.random.normal((3,)).tolist()]

    want = program()
    assert want[0] == want[1]
    assert interpret(Through(), program) == want
