"""`fn.graph`: what it shows of a traced function, what stays as it is, the way to networkx, the drawing."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest

import hybridml as hm
from hybridml.core.source_location import split_line
from hybridml.inspect.graph import Graph
from hybridml.inspect.graph_svg import by_line, draw
from hybridml.tracing.specialize import path_tree
from hybridml_compiler import aval as avals
from hybridml_compiler.graph import ir
from hybridml_compiler.ops.op import Op
from hybridml_compiler.ops.promotion import input_dtypes
from hybridml_compiler.ops.table import OPS

X = hm.asarray(np.random.default_rng(0).standard_normal((3, 4), dtype=np.float32))
W = hm.asarray(np.random.default_rng(1).standard_normal((4, 2), dtype=np.float32))


def model(x: hm.Tensor, scale: float) -> hm.Tensor:
    hidden = hm.tanh(x @ W)
    other = x.sum()
    return (hidden * scale).sum(axis=0) + other


def line_of(text: str, graph: Graph) -> str:
    """The line of a node, by the text of its source."""
    return next(node.line for node in graph if text in node.source)


def traced_model() -> Graph:
    traced = hm.trace(model)
    traced(X, 0.5)
    found: Graph = traced.graph
    return found


# -- what it shows


def test_nodes_are_those_of_the_text() -> None:
    traced = hm.trace(model)
    traced(X, 0.5)
    graph = traced.graph
    assert str(graph) == traced.ir
    assert repr(graph) == f"<graph model: {len(graph)} nodes, 3 inputs, 1 output>"
    assert [node.name for node in graph] == [f"%{k}" for k in range(len(graph))]
    assert [node.label for node in graph.inputs] == ["x", "scale", "W"]
    assert graph.captured == (graph["W"],)
    product = next(node for node in graph if node.op == "matmul")
    assert product.inputs == (graph["x"], graph["W"]) and product in graph["x"].users
    assert (product.shape, product.dtype, product.type, product.kind) == ((3, 2), np.float32, "f32[3,2]", "contraction")
    assert product.source == "hidden = hm.tanh(x @ W)" and product.line.startswith(f"{Path(__file__).name}:")
    assert graph.nodes_at(product.line) == graph.nodes_at(int(product.line.rpartition(":")[2]))
    assert [node.op for node in graph.nodes_at(product.line)] == ["matmul", "tanh"]
    assert graph.outputs[0].op == "add" and graph.outputs[0].users == ()
    reduced = next(node for node in graph if node.op == "sum" and node.shape)
    assert reduced.params["axis"] == (0,) and reduced.params["keepdims"] is False
    assert repr(product) == f"<{product.name} = matmul(%0, %2) : f32[3,2]>"
    assert repr(graph["x"]) == '<%0 = input "x" : f32[3,4]>'


def test_names_find_nodes_and_others_are_told() -> None:
    graph = traced_model()
    assert graph["%0"] is graph[0] is graph["x"] is graph.inputs[0]
    assert graph[-1] is graph.nodes[-1]
    assert "x" in graph and "%1" in graph and graph["x"] in graph and "y" not in graph
    assert len({*graph, *graph.nodes}) == len(graph)
    with pytest.raises(hm.ArgumentError, match=r"no node is called 'scal'.*scale"):
        graph["scal"]
    for name in (99, -99, None, [1]):
        with pytest.raises(hm.ArgumentError, match=f"%0 to %{len(graph) - 1}"):
            graph[name]
    assert graph[np.int64(1)] is graph[1]
    assert graph[:2] == graph.nodes[:2] and graph[50:] == ()


def test_a_training_step_tells_what_it_updates() -> None:
    layer = hm.nn.Linear(4, 2)
    optimizer = hm.optim.SGD(layer.parameters(), lr=0.1)

    @hm.trace
    def step(x: hm.Tensor) -> hm.Tensor:
        optimizer.zero_grad()
        loss = layer(x).sum()
        loss.backward()
        optimizer.step()
        return loss

    step(X)
    graph = step.graph
    assert len(graph.outputs) == 1 and graph.outputs[0].shape == ()
    assert {"layer.weight", "layer.bias"} <= graph.updates.keys()
    assert graph.updates["layer.weight"].op == "subtract" and graph["layer.weight"] in graph.captured
    assert graph.gradients.keys() == {"layer.weight", "layer.bias"}
    assert graph.gradients["layer.weight"].shape == (2, 4)
    assert [n.name for n in graph.optimized.inputs] == [n.name for n in graph.inputs]
    assert graph.optimized.updates.keys() == graph.updates.keys()
    net = graph.to_networkx()
    assert graph["x"].name in nx.ancestors(net, graph.updates["layer.weight"].name)


def test_branches_and_loops_have_subgraphs() -> None:
    @hm.trace
    def f(x: hm.Tensor) -> hm.Tensor:
        y = hm.cond(x.sum() > 0, lambda a: a * 2, lambda a: a - 1, x)
        return hm.while_loop(lambda c: c.sum() < 10, lambda c: hm.exp(c) + y, y)

    f(X)
    branch = next(node for node in f.graph if node.op == "cond")
    assert branch.kind == "control" and branch.subgraphs.keys() == {"true", "false"}
    assert [n.op for n in branch.subgraphs["true"] if n.inputs] == ["multiply"]
    assert branch.params.keys().isdisjoint(branch.subgraphs)
    loop = next(node for node in f.graph if node.op == "loop")
    assert loop.subgraphs.keys() == {"body", "condition"}
    body = loop.subgraphs["body"]
    assert "exp" in [n.op for n in body] and body.optimized is body and body.captured == ()
    assert (body.name, loop.subgraphs["condition"].name, branch.subgraphs["true"].name) == ("body", "condition", "true")
    assert "= const 10.0 : f32[]>" in repr(loop.subgraphs["condition"].constants)
    net = f.graph.to_networkx()
    assert len(net.nodes[loop.name]["subgraphs"]["body"]) == len(body)


def test_the_optimized_graph_is_what_runs() -> None:
    @hm.trace
    def f(x: hm.Tensor) -> hm.Tensor:
        return (x * 1 + hm.zeros(()).exp()) * 2

    f(X)
    graph = f.graph
    assert len(graph.optimized) < len(graph)
    assert str(graph.optimized) == f._last.shown().program.executable.stages.ir
    assert graph.optimized.optimized is graph.optimized
    interpreted = hm.trace(model, backend="interpret")
    interpreted(X, 0.5)
    assert interpreted.graph.optimized is interpreted.graph


def test_returned_inputs_views_and_updates_are_outputs() -> None:
    log: list[hm.Tensor] = []

    @hm.trace
    def f(x: hm.Tensor, y: hm.Tensor) -> tuple[Any, ...]:
        y += 1
        doubled = x * 2
        log.append(doubled + 3)
        return x, y, doubled, {"again": doubled, "row": x[0]}, doubled.sum()

    f(X, hm.ones((2,)))
    x, update, doubled, again, row, total = f.graph.outputs
    assert x is row is f.graph["x"] and update is f.graph.updates["y"] and update.op == "add"
    assert doubled is again and doubled.op == "multiply" and total.op == "sum"
    assert [node.op for node in f.graph.optimized.outputs] == [node.op for node in f.graph.outputs]
    nothing = hm.trace(lambda x: None)
    nothing(X)
    assert nothing.graph.outputs == () and "returns nothing" in texts(nothing.graph.draw().svg)


def test_a_path_with_questions_is_one_graph() -> None:
    @hm.trace
    def f(x: hm.Tensor) -> hm.Tensor:
        y = hm.exp(x)
        if y.sum() > 0:
            return y * 2
        return -y

    f(X)
    assert [node.op for node in f.graph if node.inputs] == ["exp", "multiply"]
    assert f.run(X, fetch=f.graph.outputs[0].name).tolist() == f(X).tolist()
    assert [node.op for node in f.graph.optimized if node.inputs][-1] == "multiply"


def test_what_a_segment_gave_is_not_captured() -> None:
    def f(x: hm.Tensor) -> hm.Tensor:
        y = hm.exp(x)
        return y @ W if y.sum() > 0 else x

    traced = hm.trace(f)
    traced(X)
    assert [node.label for node in traced.graph.captured] == ["W"]
    assert [node.label for node in traced.graph.optimized.captured] == ["W"]
    assert len(traced.graph.optimized.inputs) == 3  # x, the exponentials, W


def test_sizes_that_come_with_the_call_are_text() -> None:
    f = hm.trace(lambda x: hm.concat([x, x]).sum(axis=1))
    for n in (3, 5, 7):
        f(hm.ones((n, 4)))
    (x,) = f.graph.inputs
    name = x.shape[0]
    assert isinstance(name, str) and x.shape[1] == 4
    assert f.graph.outputs[0].shape == (f"2*{name}",)
    assert f.graph.to_networkx().nodes["%0"]["shape"] == (name, 4)


# -- which program, and for how long


def test_the_graph_of_the_last_call_and_of_given_arguments() -> None:
    f = hm.trace(lambda x: x.sum(), dynamic=False)
    with pytest.raises(hm.ArgumentError, match=r"has not been called yet.*graph_of"):
        _ = f.graph
    given = f.graph_of(X)
    assert f.cache_info().entries == 1
    f(X)
    assert f.graph is given is f.graph_of(X)
    f(W)
    assert f.graph is not given and f.graph["x"].shape == (4, 2)
    assert f.graph_of(X) is given


def test_calls_that_run_eagerly_have_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(path_tree, "MOST_ASKED", 20)

    @hm.trace
    def f(x: hm.Tensor) -> float:
        total = {"sum": 0.0}
        while True:
            total["sum"] += float(x.sum()) + 1
            x = x + 1
            if total["sum"] > 1e4:
                return total["sum"]

    with pytest.warns(UserWarning, match="asks for more than"):
        f(hm.ones((3,)))
    with pytest.raises(hm.ArgumentError, match="its calls run eagerly: it asks for more than"):
        _ = f.graph


def with_a_weight() -> tuple[Any, weakref.ref[hm.Tensor]]:
    weight = hm.ones((4, 2))
    return hm.trace(lambda x: x @ weight), weakref.ref(weight)


def test_it_outlives_the_function() -> None:
    f, weight = with_a_weight()
    f(X)
    graph, before = f.graph, str(f.graph)
    f(hm.ones((7, 4)))
    f.clear()
    del f
    gc.collect()
    assert weight() is None  # it keeps no tensor of the user
    assert str(graph) == before and graph["x"].shape == (3, 4)
    assert len(graph.optimized) == len(graph) and graph.draw().svg


def test_nothing_can_be_changed() -> None:
    graph = traced_model()
    with pytest.raises(AttributeError, match="read-only"):
        graph.name = "other"
    with pytest.raises(AttributeError, match=r"op of <%0 = input \"x\" .* cannot be set"):
        graph[0].op = "exp"
    with pytest.raises(AttributeError, match="read-only"):
        del graph[0].shape
    with pytest.raises(TypeError):
        graph[0].params["axis"] = 1
    with pytest.raises(TypeError):
        graph.updates["x"] = graph[0]
    with pytest.raises(TypeError):
        graph["x"] = graph[0]


def test_copies_are_the_graph_and_none_is_pickled() -> None:
    graph = traced_model()
    assert copy.deepcopy({"graph": graph})["graph"] is graph is copy.copy(graph)
    assert copy.copy(graph[0]) is copy.deepcopy(graph[0]) is graph[0]
    with pytest.raises(TypeError, match=r"cannot pickle <graph model: .*to_networkx\(\)"):
        pickle.dumps(graph)
    with pytest.raises(TypeError, match=r"cannot pickle <%0 = input"):
        pickle.dumps(graph[0])
    assert list(pickle.loads(pickle.dumps(graph.to_networkx()))) == [node.name for node in graph]


# -- networkx


def graph_of_row(op: Op) -> ir.Graph:
    sample = next(iter(op.samples(np.random.default_rng(0))))
    arrays = list(sample.args[0] if op.variadic else sample.args)
    dtypes = input_dtypes(op, [avals.of(a) for a in arrays])
    inputs = ir.graph_of([np.asarray(a, dtype) for a, dtype in zip(arrays, dtypes, strict=True)])
    params = {**sample.params, "result": 0} if op.results else sample.params
    return ir.Graph(tuple(inputs), (ir.apply(op, inputs, params, "model.py:7: y = f(x)"),), op.name)


@pytest.mark.parametrize("op", OPS.values(), ids=OPS)
def test_every_operation_has_its_attributes(op: Op) -> None:
    made = graph_of_row(op)
    graph = Graph(made)
    net = graph.to_networkx()
    (node,) = graph.outputs
    # Nodes are shared: an equal one that no input leads to may be another program's, with its line.
    file, line, source = split_line(made.outputs[0].where)
    assert net.nodes[node.name] == {
        "op": op.name,
        "shape": made.outputs[0].shape,
        "dtype": made.outputs[0].dtype.name,
        "params": dict(made.outputs[0].params),
        "label": "",
        "line": f"{file}:{line}",
        "source": source,
        "device": "cpu",
        "subgraphs": {},
    }
    operands = {net.edges[edge]["position"]: edge[0] for edge in net.in_edges(node.name, keys=True)}
    assert [operands[k] for k in range(len(node.inputs))] == [n.name for n in node.inputs]
    assert len(node.inputs) == len(made.inputs)


def test_the_same_nodes_and_edges() -> None:
    graph = traced_model()
    net = graph.to_networkx()
    assert isinstance(net, nx.MultiDiGraph) and nx.is_directed_acyclic_graph(net)
    assert list(net) == [node.name for node in graph]
    assert sorted(net.edges(keys=True)) == sorted((a.name, b.name, k) for a, b, k in graph.edges)
    assert net.graph["inputs"] == ["%0", "%1", "%2"] and net.graph["outputs"] == [graph.outputs[0].name]
    for node in graph:
        assert {graph[name] for name in net.successors(node.name)} == set(node.users)
    net.remove_node("%0")  # a copy
    assert "%0" in graph and "%0" in graph.to_networkx()


def test_an_operand_that_is_read_twice_has_two_edges() -> None:
    f = hm.trace(lambda x: x * x)
    f(X)
    assert f.graph["x"].users == (f.graph["%1"],) and f.graph["%1"].inputs == (f.graph["x"],) * 2
    assert f.graph.to_networkx().number_of_edges("%0", "%1") == 2


def test_what_depends_on_a_line() -> None:
    graph = traced_model()
    net = graph.to_networkx()
    start = [node.name for node in graph.nodes_at(line_of("hidden = ", graph))]
    reached = set().union(*(nx.descendants(net, name) for name in start))
    lines = {net.nodes[name]["source"] for name in reached - set(start)}
    assert lines == {"return (hidden * scale).sum(axis=0) + other"}
    assert nx.ancestors(net, graph.nodes_at(line_of("other = ", graph))[-1].name) == {"%0"}


# -- the drawing


def texts(svg: str) -> list[str]:
    root = ElementTree.fromstring(svg)
    return [element.text or "" for element in root.iter("{http://www.w3.org/2000/svg}text")]


def test_a_drawing_is_well_formed(tmp_path: Path) -> None:
    graph = traced_model()
    drawing = graph.draw(tmp_path / "model.svg")
    assert (tmp_path / "model.svg").read_text(encoding="utf-8") == drawing.svg == graph._repr_svg_()
    found = texts(drawing.svg)
    assert found[0] == repr(graph)[1:-1]
    for part in ("hidden = hm.tanh(x @ W)", "tanh", "f32[3,2]", "W", "scale", "returns float32[2]"):
        assert part in found
    assert "save(path)" in repr(drawing)
    drawing.save(tmp_path / "again.svg")
    with pytest.raises(hm.ArgumentError, match=r"draws SVG, got a path that ends in '.png'; call it model.svg"):
        graph.draw(tmp_path / "model.png")
    assert (tmp_path / "again.svg").read_bytes() == (tmp_path / "model.svg").read_bytes()


def test_bodies_are_drawn_inside() -> None:
    f = hm.trace(lambda x: hm.cond(x.sum() > 0, hm.exp, hm.negative, x))
    f(X)
    found = texts(f.graph.draw().svg)
    assert {"true", "false", "exp", "negative"} <= set(found)


def test_a_large_graph_is_cut_and_says_so() -> None:
    @hm.trace(backend="interpret")
    def f(x: hm.Tensor) -> hm.Tensor:
        for _ in [0] * 100:  # no `range`, which would be one loop of the graph
            x = hm.sin(x)
            x = x * 2
        return x

    f(X)
    found = texts(f.graph.draw().svg)
    assert "The first 120 boxes; 80 more are not drawn. to_networkx() has every node." in found
    assert found.count("x = hm.sin(x)") == 60


def test_many_operations_of_few_lines_are_closed_boxes() -> None:
    @hm.trace(backend="interpret")
    def f(x: hm.Tensor) -> hm.Tensor:
        for _ in [0] * 100:  # no `range`, which would be one loop of the graph
            x = hm.sin(x) * 2
        return x

    f(X)
    found = texts(f.graph.draw().svg)
    assert "More than 160 operations: each box stands for all operations of its line." in found
    assert "sin" not in found and "x = hm.sin(x) * 2" in found


def test_lines_that_lead_to_each_other_are_several_boxes() -> None:
    sine, double = OPS["sin"], OPS["multiply"]
    first = node = ir.input_node(avals.parse("f32[2]"), "x")
    for _ in range(3):
        node = ir.apply(sine, [node], where="f.py:1: a")
        node = ir.apply(double, [node, node], where="f.py:2: b")
    free = ir.apply(sine, [first], where="f.py:2: b")
    graph = ir.Graph((first,), (node, free))
    groups = by_line([n for n in graph.nodes() if n.op is not None])
    done: set[ir.Node] = {first}
    for group in groups:
        assert len({n.where for n in group}) <= 1
        for n in group:
            assert set(n.inputs) <= done | set(group)
        done |= set(group)
    assert len(groups) < 7
    ElementTree.fromstring(draw(graph, "a < b & c", [("returns", graph.outputs)]).svg)
