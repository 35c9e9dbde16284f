"""The layout pass: the same bits, the same signature, and nothing transposed between the layers of a network."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given

import hybridml as hm
from hybridml import functional as F
from hybridml import nn, optim
from hybridml_compiler.graph.interpret import interpret
from hybridml_compiler.graph.ir import Graph, Node, constant, topological
from hybridml_compiler.graph.rewrite import make
from hybridml_compiler.graph.text import parse_graph, print_graph
from hybridml_compiler.graph.verify import verify
from hybridml_compiler.passes import run_passes
from hybridml_compiler.passes.layout import channels_last, reshaped
from hybridml_compiler.passes.patterns import is_op, sample
from tests.support.random_graphs import data, graphs, same_bits

CONVOLUTION = make("convolution", constant(np.ones((1, 2, 2, 1, 1), "f4")), constant(np.ones((2, 2, 1, 1, 1), "f4")))


@given(graphs(size=16))
def test_random_graphs_keep_every_bit(graph: Graph) -> None:
    graph = Graph(graph.inputs, (*graph.outputs, CONVOLUTION))
    after = channels_last(graph)
    verify(after)
    assert after.inputs == graph.inputs and [n.aval for n in after.outputs] == [n.aval for n in graph.outputs]
    rng = np.random.default_rng(0)
    arrays = [data(node.aval, rng) for node in graph.inputs]
    for old, new in zip(interpret(graph, arrays), interpret(after, arrays), strict=True):
        assert same_bits(old, new), f"{print_graph(graph)}\n{print_graph(after)}"


def last(x: Node) -> Node:
    return make("permute_dims", x, axes=(0, 2, 3, 1))


def first(x: Node) -> Node:
    return make("permute_dims", x, axes=(0, 3, 1, 2))


def image(dtype: str = "i4") -> Node:
    """Channels first, of what lies channels last."""
    return first(sample(dtype, 2, 6, 4, 3))


def small() -> Node:
    return sample("i4", 3, 1, 1)


def plain() -> Node:
    return sample("i4", 2, 3, 6, 4)


def pooled(x: Node) -> Node:
    return make("max_pool", x, size=(3, 2), stride=(2, 1), padding=((1, 0), (0, 1)))


def unpooled() -> Node:
    x = image()
    return make("unpool", pooled(x), make("argmax_pool", x, **pooled(x).params), shape=x.shape, **pooled(x).params)


MOVED: dict[str, Callable[[], Node]] = {
    "elementwise": lambda: make("add", make("negative", image()), small()),
    "residual": lambda: make("add", image(), make("negative", image())),
    "choice": lambda: make("where", make("greater", image(), constant(np.int32(0))), image(), small()),
    "plain operand": lambda: make("add", image(), plain()),
    "stretched operand": lambda: make("add", image(), make("broadcast_to", small(), shape=(2, 3, 6, 4))),
    "statistics": lambda: make("subtract", image(), make("max", image(), axis=(0, 2, 3), keepdims=True)),
    "sums": lambda: make(
        "add", image(), make("reshape", make("sum", image(), axis=(0, 2, 3), dtype="i4"), shape=(3, 1, 1))
    ),
    "argmax": lambda: make("add", image(), make("astype", make("argmax", image(), axis=1, keepdims=True), dtype="i4")),
    "pad": lambda: make("pad", image(), widths=((0, 0), (1, 0), (2, 3), (0, 1))),
    "slice": lambda: make("slice", image(), starts=(0, 2, 1, 0), stops=(2, -1, 5, 4), steps=(1, -1, 2, 1)),
    "slice_update": lambda: make("slice_update", make("full", shape=(2, 3, 6, 4), value=1, dtype=np.dtype("i4")),
        make("slice", image(), starts=(0, 1, 0, 0), stops=(2, 2, 6, 4)), starts=(0, 1, 0, 0), stops=(2, 2, 6, 4)),
    "flip": lambda: make("flip", image(), axis=(1, 3)),
    "concat": lambda: make("concat", image(), make("negative", image()), axis=1),
    "broadcast": lambda: make("broadcast_to", make("max", image(), axis=2, keepdims=True), shape=(2, 3, 5, 4)),
    "max_pool": lambda: pooled(image()),
    "unpool": unpooled,
    "windows": lambda: make("max", make("windows", image(), size=(2, 3), stride=(2, 1), axes=(3, 2)), axis=(-1, -2)),
    "fold_windows": lambda: make("fold_windows", make("windows", image(), size=(2, 2)), shape=(6, 4)),
    "split channels": lambda: make("reshape", make("reshape", image(), shape=(2, 1, 3, 6, 4)), shape=(2, 3, 6, 4)),
}  # fmt: skip


@pytest.mark.parametrize("name", MOVED)
def test_permutations_meet(name: str) -> None:
    """Between two permutations that undo each other, none is left: that of an operand in plain order aside."""
    value = last(MOVED[name]())
    width = make("reshape", value, shape=(*value.shape[:3], 1, value.shape[3]))
    kernel = sample("i4", 1, 1, 1, value.shape[3], 2)
    output = make("convolution", width, kernel)
    inputs = tuple(node for node in topological([output]) if node.is_input)
    graph = Graph(inputs, (output,))
    after = channels_last(graph)
    verify(after)
    left = [node for node in after.nodes() if is_op(node, "permute_dims")]
    assert len(left) == (name == "plain operand"), print_graph(after)
    assert channels_last(after) is after
    rng = np.random.default_rng(0)
    arrays = [data(node.aval, rng) for node in inputs]
    assert same_bits(interpret(graph, arrays)[0], interpret(after, arrays)[0])


def test_what_has_no_rule_reads_in_plain_order() -> None:
    flat = make("reshape", image("f4"), shape=(2, 72))
    graph = Graph((), (make("matmul", flat, sample("f4", 72, 5)), CONVOLUTION))
    graph = Graph(tuple(n for n in graph.nodes() if n.is_input), graph.outputs)
    assert channels_last(graph) is graph
    without = Graph(graph.inputs, (make("negative", make("abs", image())),))
    assert channels_last(without) is without  # no convolution: somebody's choice


def test_an_operand_of_the_same_size_may_have_fewer_axes() -> None:
    found = make("minimum", sample("f4", 3, 5), make("permute_dims", sample("f4", 1, 5, 3), axes=(0, 2, 1)))
    graph = Graph((), (found, CONVOLUTION))
    graph = Graph(tuple(n for n in graph.nodes() if n.is_input), graph.outputs)
    rng = np.random.default_rng(0)
    arrays = [data(node.aval, rng) for node in graph.inputs]
    assert same_bits(interpret(channels_last(graph), arrays)[0], interpret(graph, arrays)[0])


def test_an_update_of_state_stays_in_the_order_of_the_state() -> None:
    """A gradient arrives permuted; the parameter that it is taken from is written where it lies."""
    weight, gradient = plain(), image()
    new = make("subtract", weight, gradient)
    inputs = (weight, *(n for n in topological([gradient]) if n.is_input))
    assert channels_last(Graph(inputs, (new, CONVOLUTION))).outputs[0] is new


def test_an_update_of_permuted_state_is_one_of_its_memory() -> None:
    """What an optimizer does to weights that lie channels last: elementwise over the memory, in place."""
    weight, gradient = sample("f4", 3, 3, 4, 6), sample("f4", 4, 3, 3, 6)
    seen = make("permute_dims", weight, axes=(3, 2, 0, 1))
    new = make("subtract", seen, make("permute_dims", gradient, axes=(3, 0, 1, 2)))
    graph = Graph((weight, gradient), (make("permute_dims", new, axes=(2, 3, 1, 0)),))
    moved = make("permute_dims", gradient, axes=(1, 2, 0, 3))
    assert channels_last(graph).outputs == (make("subtract", weight, moved),)


@pytest.mark.parametrize(
    ("old", "new", "axes", "expected"),
    [
        ((2, 3, 6, 4), (2, 3, 24), (0, 3, 1, 2), ((2, 24, 3), (0, 2, 1))),  # pixels lie side by side
        ((2, 3, 6, 4), (2, 72), (0, 3, 1, 2), None),
        ((2, 8, 6, 4), (2, 4, 2, 6, 4), (0, 3, 1, 2), ((2, 6, 4, 4, 2), (0, 3, 4, 1, 2))),
        ((1, 3, 1, 1), (3,), (0, 3, 1, 2), ((3,), (0,))),
        ((3, 4), (1, 3, 1, 4), (1, 0), ((1, 4, 3, 1), (0, 2, 3, 1))),
        ((2, 3, 6, 1), (2, 3, 6, 1, 1), (0, 3, 1, 2), ((2, 6, 1, 3, 1), (0, 3, 1, 2, 4))),
        ((0, 3), (3, 0), (1, 0), None),
    ],
)
def test_reshapes_of_permuted_arrays(old: Any, new: Any, axes: Any, expected: Any) -> None:
    assert reshaped(old, new, axes) == expected
    if expected is not None:
        x = np.arange(np.prod(old)).reshape(old)
        core = np.transpose(x, np.argsort(axes))
        assert (core.reshape(expected[0]).transpose(expected[1]) == x.reshape(new)).all()


class Network(nn.Module):
    """Convolution, normalisation, activation, maximum pooling, a residual block with a 1 x 1 convolution, averages."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.left = nn.Sequential(nn.Conv2d(4, 6, 3, 2, 1), nn.BatchNorm2d(6), nn.ReLU(), nn.Conv2d(6, 6, 3, padding=1))
        self.right = nn.Conv2d(4, 6, 1, 2)
        self.mixed = nn.Sequential(nn.Conv2d(6, 6, 3, padding=1, groups=3), nn.AvgPool2d(2), nn.Conv2d(6, 6, 1))
        self.head = nn.Linear(6, 5)

    def forward(self, x: hm.Tensor) -> hm.Tensor:
        x = F.max_pool2d(F.relu(self.norm(self.stem(x))), 3, 2, 1)
        x = F.relu(self.left(x) + self.right(x))
        return self.head(F.adaptive_avg_pool2d(F.relu(self.mixed(x)), 1).flatten(1))


def test_no_activation_is_transposed_in_a_training_step() -> None:
    net = Network()
    optimizer = optim.SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=0.01)

    def step(x: hm.Tensor, y: hm.Tensor) -> hm.Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        return loss

    traced = hm.trace(step, backend="interpret")
    traced(hm.ones((2, 3, 16, 12)), hm.asarray([1, 4]))
    after, _ = run_passes(parse_graph(traced.ir))
    kernels = {p.size for p in net.parameters()}
    for node in after.nodes():
        if is_op(node, "permute_dims"):
            source, readers = node.inputs[0], [n for n in after.nodes() if node in n.inputs]
            strided = all(is_op(n, "convolution", "matmul", "reshape") for n in readers)  # the weights' gradients
            order = node.params["axes"]
            view = strided and (order[0] != 0 or order[:3] == (0, 1, 2))  # the latter of a kernel's last two axes
            assert source.is_input or view or node.aval.size in kernels, f"{node}\n{print_graph(after)}"
    assert run_passes(after)[0] is after


def test_golden(golden: Callable[[str, str], None]) -> None:
    def block(x: hm.Tensor, w: hm.Tensor, b: hm.Tensor, v: hm.Tensor) -> hm.Tensor:
        y = F.conv2d(x, w, b, padding=1)
        y = F.max_pool2d(F.relu(y - y.mean(axis=(0, 2, 3), keepdims=True)), 2)
        return F.conv2d(y, v, padding=1).reshape((2, -1))

    traced = hm.trace(block, backend="interpret")
    traced(hm.ones((2, 3, 8, 8)), hm.ones((4, 3, 3, 3)), hm.ones((4,)), hm.ones((6, 4, 3, 3)))
    after, _ = run_passes(parse_graph(traced.ir))
    golden("passes_conv_block", print_graph(after))
