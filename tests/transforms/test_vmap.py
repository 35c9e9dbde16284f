"""`vmap`: its arguments, what it composes with, and what happens inside."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml import functional as F
from hybridml import nn
from hybridml_compiler.ops.table import OPS

X = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)


def close(a: Any, b: Any, tolerance: float = 2e-6) -> None:
    np.testing.assert_allclose(np.asarray(a.detach()), np.asarray(b.detach()), rtol=tolerance, atol=tolerance)


def looped(fn: Callable[..., Any], x: Any) -> Any:
    return hm.stack([fn(row) for row in x])


# -- arguments


@dataclasses.dataclass
class Pair:
    a: Any
    b: Any


def test_axes_of_arguments_and_results() -> None:
    x, y = hm.asarray(X), hm.asarray(X.T.copy())
    close(hm.vmap(lambda a, b: a * b, in_axes=(0, 1))(x, y), x * y.T)
    close(hm.vmap(lambda a, b: a * b, in_axes=(0, -1), out_axes=1)(x, y), (x * y.T).T)
    close(hm.vmap(lambda a, b: a * b, in_axes=(0, None))(x, 2.0), x * 2)
    close(hm.vmap(lambda a: a.sum(), in_dims=1)(x), x.sum(axis=0))
    given = {"a": x, "b": (hm.tensor(2.0), y)}
    fn = hm.vmap(lambda d: d["a"] * d["b"][0] * d["b"][1], in_axes=({"a": 0, "b": (None, 1)},))
    close(fn(given), x * 2 * y.T)
    both = hm.vmap(lambda p: Pair(p.a * p.b, None), in_axes=(Pair(0, None),))(Pair(x, x[0]))
    close(both.a, x * x[0])
    assert both.b is None
    total, rows = hm.vmap(lambda a: (hm.ones(2), {"r": a.sum()}), out_axes=(None, 0))(x)
    assert total.shape == (2,)
    close(rows["r"], x.sum(axis=1))


def test_what_all_elements_share_and_numbers_are_repeated() -> None:
    a, b, c = hm.vmap(lambda a: (hm.ones(2), 1.5, None))(hm.asarray(X))
    assert a.tolist() == [[1.0, 1.0]] * 3 and b.tolist() == [1.5] * 3 and c is None


def test_keywords_and_the_size_alone() -> None:
    x = hm.asarray(X)
    close(hm.vmap(lambda a, *, b: a + b)(x, b=x), x + x)
    assert hm.vmap(lambda: hm.ones(2), axis_size=3)().shape == (3, 2)
    close(hm.vmap(lambda a: a * 2, chunk_size=2)(x), x * 2)
    assert hm.vmap(lambda a: a * 2)(hm.zeros((0, 4))).shape == (0, 4)


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda x: hm.vmap(3), hm.ArgumentError, "takes a function"),
        (lambda x: hm.vmap(hm.sin, randomness="some"), hm.ArgumentError, "randomness is one of"),
        (lambda x: hm.vmap(hm.sin, chunk_size=0), hm.ArgumentError, "chunk_size is a number"),
        (lambda x: hm.vmap(hm.sin, chunk_size=1.5), hm.ArgumentError, "chunk_size is a number"),
        (lambda x: hm.vmap(hm.add)(x, x[:2]), hm.ShapeError, "leaf 0 has 3, leaf 1 has 2"),
        (lambda x: hm.vmap(hm.add)(x, 2.0), hm.DTypeError, "which has no axis 0"),
        (lambda x: hm.vmap(hm.add, in_axes=(0,))(x, x), hm.ArgumentError, "1 entries for 2 arguments"),
        (lambda x: hm.vmap(hm.sin, in_axes=5)(x), hm.ShapeError, "axis 5 of leaf 0"),
        (lambda x: hm.vmap(hm.sin, in_axes=None)(x), hm.ArgumentError, "no argument has an axis"),
        (lambda x: hm.vmap(hm.sin, in_axes=({"a": 0},))(x), hm.ArgumentError, "in_axes has {'a': 0}"),
        (lambda x: hm.vmap(hm.sin, out_axes=7)(x), hm.ShapeError, "out_axes is 7"),
        (lambda x: hm.vmap(hm.sin, out_axes=None)(x), hm.ArgumentError, "differs from element to element"),
        (lambda x: hm.vmap(lambda a: "text")(x), hm.DTypeError, "must return tensors"),
        (lambda x: hm.vmap(lambda a: a if a.sum() > 0 else -a)(x), hm.TraceError, "another value for each"),
        (lambda x: hm.vmap(lambda a: hm.randn(2))(x), hm.TraceError, "randomness='different'"),
        (lambda x: hm.vmap(hm.sin, axis_name="i", chunk_size=2)(x), hm.ArgumentError, "does not go with axis_name='i'"),
        (
            lambda x: hm.vmap(hm.sin, randomness="same", chunk_size=2)(x),
            hm.ArgumentError,
            "does not go with randomness",
        ),
        (lambda x: hm.psum(x, "i"), hm.ArgumentError, "no vmap around this call"),
        (lambda x: hm.vmap(hm.sin, 1, in_dims=1), hm.ArgumentError, "in_axes and in_dims are two names"),
    ],
)
def test_errors(call: Callable[[Any], Any], error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        call(hm.asarray(X))


def test_an_element_is_of_no_use_afterwards() -> None:
    kept: list[Any] = []
    hm.vmap(lambda a: kept.append(a) or a)(hm.asarray(X))
    with pytest.raises(hm.TraceError, match="a function under vmap"):
        kept[0] + 1


# -- composition

q = np.random.default_rng(1).normal(size=(3, 4, 8)).astype(np.float32)
ROW = hm.asarray(np.random.default_rng(2).normal(size=(8,)).astype(np.float32))


class Cube(hm.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        y = x * x
        ctx.save_for_backward(x, y)
        return y * x, y

    @staticmethod
    def backward(ctx: Any, g: Any, h: Any) -> Any:
        x, y = ctx.saved_tensors
        return 3 * y * g + 2 * x * h


def cubed(x: Any) -> Any:
    a, b = Cube.apply(x)
    return a + b


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "softmax": lambda x: F.softmax(x, -1) * x,
    "layer_norm": lambda x: F.layer_norm(x, (8,)) * x,
    "attention": lambda x: F.scaled_dot_product_attention(x, x, x, is_causal=True),
    "product": lambda x: hm.tanh(x @ x.T),
    "shared": lambda x: hm.sin(x * ROW) @ ROW,
    "indexing": lambda x: x[hm.asarray([1, 0, 1])] * x[1:],
    "own indices": lambda x: x[hm.argsort(x[:, 0])] * x[2],
    "custom": cubed,
    "checkpoint": lambda x: hm.checkpoint(lambda y: hm.exp(hm.sin(y)), x),
    "cond": lambda x: hm.cond(x.sum() > 0, lambda y: y * y, lambda y: -y, x),
    "while": lambda x: hm.while_loop(lambda y: y.abs().sum() < 100, lambda y: y * 1.5, x),
    "scan": lambda x: hm.scan(lambda c, row: (c * 0.5 + row, c * row), hm.zeros(8), x)[1],
    "in place": lambda x: filled(x),
    "gru": lambda x: gru(x[None])[0],
    "pool": lambda x: F.max_pool2d(x[None, None], 2),
    "cross_entropy": lambda x: F.cross_entropy(x, hm.asarray([1, 0, 3, 2])),
    "solve": lambda x: hm.linalg.solve(x @ x.T + hm.eye(4), x),
}
gru = nn.GRU(8, 5, batch_first=True)


def filled(x: Any) -> Any:
    out = hm.zeros((4, 8))
    out[1] = x[0] * 2
    out[2:] += x[1:3]
    part = out[3]
    part *= x[3]
    return out


@pytest.mark.parametrize("name", FUNCTIONS)
def test_values_and_gradients_are_those_of_a_loop(name: str) -> None:
    fn = FUNCTIONS[name]
    x = hm.asarray(q)

    def loss(x: Any) -> Any:
        return (fn(x) ** 2).sum()

    close(hm.vmap(fn)(x), looped(fn, x), 1e-4)
    expected = looped(hm.grad(loss), x)
    close(hm.vmap(hm.grad(loss))(x), expected, 1e-4)
    close(hm.grad(lambda x: hm.vmap(loss)(x).sum())(x), expected, 1e-4)
    close(hm.trace(hm.vmap(hm.grad(loss)))(x), expected, 1e-4)


@pytest.mark.parametrize("name", ["softmax", "attention", "custom", "shared", "cond", "own indices"])
def test_second_derivatives(name: str) -> None:
    fn, x = FUNCTIONS[name], hm.asarray(q)

    def loss(x: Any) -> Any:
        return (fn(x) ** 2).sum()

    def squared(x: Any) -> Any:
        return (hm.grad(loss)(x) ** 2).sum()

    expected = looped(hm.grad(squared), x)
    scale = float(expected.abs().max())
    close(hm.vmap(hm.grad(squared))(x) / scale, expected / scale, 1e-4)
    outer = hm.grad(lambda x: (hm.vmap(hm.grad(loss))(x) ** 2).sum())(x)
    close(outer / scale, expected / scale, 1e-4)


def test_gradients_reach_what_the_function_reads_from_outside() -> None:
    w, x = hm.tensor([2.0, 3.0], requires_grad=True), hm.asarray(X)[:, :2]
    (hm.vmap(hm.grad(lambda a: (a * w).sum() ** 2))(x)).sum().backward()
    expected = hm.grad(lambda w: sum(hm.grad(lambda a: (a * w).sum() ** 2)(row).sum() for row in x))(w.detach())
    assert w.grad is not None
    close(w.grad, expected, 1e-5)


def test_it_nests_and_traces_in_any_order() -> None:
    x = hm.asarray(X)
    close(hm.vmap(lambda a: hm.vmap(lambda b: a @ b)(x))(x), x @ x.T)
    close(hm.vmap(hm.trace(lambda a: hm.vmap(hm.sin)(a)))(x), hm.sin(x))
    traced = hm.trace(hm.vmap(lambda a, b: (a * b).sum(), in_axes=(0, None)))
    for _ in range(2):
        close(traced(x, x[0]), x @ x[0])
    assert traced.cache_info().compiles == 1


def test_loops_of_a_traced_program_stay_loops() -> None:
    steps = hm.arange(300.0) * 0.01
    fn = hm.vmap(lambda a: hm.scan(lambda c, t: (c + t * a, None), hm.tensor(0.0), steps)[0])
    until = hm.vmap(lambda a: hm.while_loop(lambda v: v < 1000, lambda v: v * 2 + 1, a.abs()))
    for each in (fn, until):
        traced = hm.trace(each)
        close(traced(hm.asarray(X)[:, 0]), each(hm.asarray(X)[:, 0]), 1e-4)
        assert traced.ir.count("\n") < 40


def test_layers_take_batches_of_batches() -> None:
    x = hm.asarray(np.random.default_rng(3).normal(size=(2, 3, 3, 6, 6)).astype(np.float32))
    for layer in (nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(3, 6, 3, groups=3), nn.BatchNorm2d(3).eval()):
        close(hm.vmap(layer)(x), looped(layer, x), 1e-5)


def test_ensembles_and_gradients_of_each_sample() -> None:
    models = [nn.Linear(4, 2) for _ in range(3)]
    stacked = {
        name: hm.stack([dict(m.named_parameters())[name].detach() for m in models]) for name in ("weight", "bias")
    }
    x = hm.asarray(X)
    found = hm.vmap(lambda p, a: F.linear(a, p["weight"], p["bias"]), in_axes=(0, None))(stacked, x)
    close(found, hm.stack([m(x) for m in models]))
    each = hm.vmap(hm.grad(lambda p, a: (F.linear(a, p["weight"], p["bias"]) ** 2).sum()), in_axes=(None, 0))
    given = {name: t[0] for name, t in stacked.items()}
    loop = [hm.grad(lambda p, a: (F.linear(a, p["weight"], p["bias"]) ** 2).sum())(given, row) for row in x]
    for name, g in each(given, x).items():
        close(g, hm.stack([one[name] for one in loop]), 1e-5)


# -- inside


def test_updates_reach_arguments_and_refuse_what_is_shared() -> None:
    x, shared = hm.tensor([[1.0, 2.0], [3.0, 4.0]]), hm.zeros(2)

    def doubled(a: Any) -> Any:
        a[0] *= 2
        return a.sum()

    assert hm.vmap(doubled)(x).tolist() == [4.0, 10.0] and x.tolist() == [[2.0, 2.0], [6.0, 4.0]]
    with pytest.raises(hm.ArgumentError, match="all of them share"):
        hm.vmap(lambda a: shared.add_(a))(x)
    assert shared.tolist() == [0.0, 0.0]


def test_random_numbers() -> None:
    x = hm.asarray(X)
    hm.manual_seed(0)
    different = hm.vmap(lambda a: hm.randn(2), randomness="different")(x)
    assert len({tuple(row) for row in different.tolist()}) == 3
    hm.manual_seed(0)
    again = hm.trace(hm.vmap(lambda a: hm.randn(2), randomness="different"))
    np.testing.assert_array_equal(np.asarray(again(x)), np.asarray(different))
    same = hm.vmap(lambda a: hm.randn(2), randomness="same")(x)
    assert len({tuple(row) for row in same.tolist()}) == 1
    kept = hm.vmap(lambda a: F.dropout(a, 0.5), randomness="different")(hm.ones((64, 64)))
    assert len({tuple(row) for row in kept.tolist()}) == 64
    t = hm.asarray(q)
    hm.vmap(lambda a: F.scaled_dot_product_attention(a, a, a, dropout_p=0.5), randomness="different")(t)


def test_what_elements_have_in_common() -> None:
    x = hm.asarray(X)[:, 0]
    share = hm.vmap(lambda a: a / hm.psum(a, "i"), axis_name="i")
    grid = hm.arange(6.0).reshape(2, 3)
    for common, expected in ((hm.psum, 15.0), (hm.pmean, 2.5)):  # over both axes
        inner = hm.vmap(lambda a, common=common: common(a, ("i", "j")), axis_name="j")
        assert hm.vmap(inner, axis_name="i")(grid).tolist() == [[expected] * 3] * 2
    close(share(x), x / x.sum())
    exact = hm.eye(3) / x.sum() - hm.stack([x / x.sum() ** 2] * 3, axis=1)
    for way in (hm.jacrev, hm.jacfwd):
        close(way(share)(x), exact, 1e-4)
    both = hm.vmap(
        lambda r: hm.vmap(lambda a: a - hm.pmean(a, "o") + hm.axis_index("i"), axis_name="i")(r), axis_name="o"
    )
    close(both(hm.asarray(X)), hm.asarray(X) - hm.asarray(X).mean(axis=0) + hm.arange(4.0), 1e-5)


def test_a_row_without_a_rule_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    from hybridml.core.batching import rules

    monkeypatch.delitem(rules._RULES, OPS["det"])
    with pytest.warns(UserWarning, match="det has no rule for batches"):
        close(hm.vmap(hm.linalg.det)(hm.eye(2) * hm.ones((3, 1, 1))), hm.ones(3))


def test_modules_as_functions() -> None:
    model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2))
    given = {name: t.detach() for name, t in model.named_parameters()}
    x, target = hm.asarray(X), hm.asarray([0, 1, 1])

    def loss(p: Any, a: Any, t: Any) -> Any:
        return F.cross_entropy(hm.func.functional_call(model, p, (a[None],)), t[None])

    each = hm.func.vmap(hm.func.grad(loss), in_dims=(None, 0, 0))
    F.cross_entropy(model(x), target).backward()
    for fn in (each, hm.trace(each)):
        for name, g in fn(given, x, target).items():
            close(g.mean(axis=0), model.get_parameter(name).grad, 1e-5)
    members = [nn.BatchNorm1d(4) for _ in range(3)]
    state = hm.func.stack_module_state(members)
    for several in (state, {**state[0], **state[1]}):  # PyTorch's pair of parameters and buffers, or one dictionary
        found = hm.vmap(lambda s: hm.func.functional_call(members[0].eval(), s, (x,)))(several)
        close(found, hm.stack([member.eval()(x) for member in members]))
    with pytest.raises(hm.ArgumentError, match="names in common"):
        hm.func.functional_call(model, (given, given), x)
    with pytest.raises(hm.ArgumentError, match=r"has no '0.wait'"):
        hm.func.functional_call(model, {"0.wait": x}, x)
    with pytest.raises(hm.ArgumentError, match=r"lacks '0.bias'"):
        hm.func.functional_call(model, {"0.weight": given["0.weight"]}, x, strict=True)
    with pytest.raises(hm.ShapeError, match=r"0.weight has shape \(6, 4\)"):
        hm.func.functional_call(model, {"0.weight": x}, x)
    assert model[0].weight.requires_grad


def test_parameters_that_are_shared_are_replaced_everywhere() -> None:
    first, second = nn.Linear(3, 3), nn.Linear(3, 3)
    second.weight = first.weight
    model = nn.Sequential(first, second)
    given = {"0.weight": hm.eye(3) * 2, "0.bias": hm.zeros(3), "1.bias": hm.zeros(3)}
    assert hm.func.functional_call(model, given, hm.ones(3)).tolist() == [4.0] * 3
    assert second.weight is first.weight


def no_gradient(a: Any) -> Any:
    with hm.no_grad():
        return a * 2


def written_unrecorded(a: Any) -> Any:
    b = a * 2
    with hm.no_grad():
        b[0] = 5.0
    b.detach().add_(1.0)
    kept = b.detach()
    b += 1
    return b**2 * kept


@pytest.mark.parametrize(
    "fn",
    [
        lambda a: a * a.detach(),
        lambda a: a + (hm.round(a) - a).detach(),
        lambda a: a * no_gradient(a),
        written_unrecorded,
    ],
)
def test_what_is_detached_inside_has_no_gradient_outside(fn: Callable[[Any], Any]) -> None:
    x = hm.asarray(X)
    expected = looped(hm.grad(lambda a: (fn(a) ** 2).sum()), x)
    close(hm.grad(lambda x: (hm.vmap(fn)(x) ** 2).sum())(x), expected, 1e-4)
    nested = hm.grad(lambda x: (hm.vmap(hm.vmap(fn))(x) ** 2).sum())
    close(nested(hm.stack([x, x])), hm.stack([expected, expected]), 1e-4)


@pytest.mark.parametrize("randomness", ["different", "same"])
def test_a_checkpoint_draws_the_same_numbers_again(randomness: Any) -> None:
    def kept(a: Any) -> Any:
        return hm.checkpoint(lambda v: F.dropout(v, 0.5), a).sum()

    def own(a: Any) -> Any:
        generator = hm.random.Generator.at(hm.asarray(np.array([1, 2], np.uint64)) + hm.zeros((2,), dtype="uint64"))
        return hm.checkpoint(lambda v: v * generator.uniform((8,)), a).sum()

    x = hm.ones((3, 8))
    for fn in (kept, own):
        each = hm.vmap(hm.value_and_grad(fn), randomness=randomness)
        for call in (each, hm.trace(each)):
            value, gradient = call(x)
            close(value, gradient.sum(axis=1))


def test_updates_in_branches_and_loops_reach_those_that_take_them() -> None:
    def branch(a: Any) -> Any:
        s = hm.zeros(2)

        def one() -> Any:
            s[0] = a * 2
            return a

        def other() -> Any:
            s[1] += 10.0 * a
            return -a

        return hm.cond(a > 0, one, other) + s.sum() * 100 * a

    def loop(a: Any) -> Any:
        n = hm.zeros(())

        def body(v: Any) -> Any:
            n.add_(v)
            return v * 2

        return hm.while_loop(lambda v: v.abs() < 10, body, a) * n

    x = hm.tensor([1.0, -1.0, 20.0])
    for fn in (branch, loop):
        close(hm.vmap(fn)(x), looped(fn, x))
        close(hm.vmap(hm.grad(fn))(x), looped(hm.grad(fn), x))
        close(hm.grad(lambda x, fn=fn: hm.vmap(fn)(x).sum())(x), looped(hm.grad(fn), x))
    close(hm.trace(hm.vmap(branch))(x), looped(branch, x))
    with pytest.warns(UserWarning, match="carry the value"):  # it runs eagerly, and right
        close(hm.trace(hm.vmap(loop))(x), looped(loop, x))


def test_a_loop_in_a_branch_ends_for_those_of_the_other() -> None:
    def fn(a: Any) -> Any:
        return hm.cond(a > 0, lambda: hm.while_loop(lambda v: v < 10, lambda v: v * 2, a), lambda: a)

    for call in (hm.vmap(fn), hm.trace(hm.vmap(fn))):
        assert call(hm.tensor([1.0, -1.0])).tolist() == [16.0, -1.0]


def test_decisions_of_one_vmap_and_of_two() -> None:
    def fn(a: Any) -> Any:
        grown = hm.while_loop(lambda v: v < 100, lambda v: v * 2 + 1, a.abs())
        return hm.cond(a > 0, lambda v: v * 2, lambda v: -v, grown)

    x = hm.asarray(X)
    expected = looped(lambda r: looped(fn, r), x)
    outer = hm.vmap(lambda a, r: hm.vmap(lambda b: b * fn(a))(r))
    for way in (lambda f: f, hm.trace):
        close(way(hm.vmap(hm.vmap(fn)))(x), expected, 1e-5)
        close(way(outer)(x[:, 0], x), x * expected[:, :1], 1e-5)


def test_hooks_change_gradients_that_are_taken_outside() -> None:
    def fn(a: Any, scale: Any) -> Any:
        inner, shared, removed = a * 2, scale * 2, a * 3
        inner.register_hook(lambda g: g * 10 + 1)
        shared.register_hook(lambda g: g * 10)
        removed.register_hook(lambda g: g * 100).remove()
        return (inner**2 * shared + removed).sum()

    x, w = hm.asarray(X), hm.tensor(2.0)
    expected = hm.grad(lambda x, w: looped(lambda a: fn(a, w), x).sum(), argnums=(0, 1))(x, w)
    each = hm.vmap(fn, in_axes=(0, None))
    for found, wanted in zip(hm.grad(lambda x, w: each(x, w).sum(), argnums=(0, 1))(x, w), expected, strict=True):
        close(found, wanted, 1e-4)
    with pytest.raises(hm.GradientError, match="register it outside"):
        hm.vmap(lambda a: a.register_hook(lambda g: g) and a)(x.clone().requires_grad_())


@pytest.mark.parametrize("axis", [0, 1])
def test_gradients_inside_of_arguments_that_require_them_outside(axis: int) -> None:
    x = hm.asarray(X).requires_grad_()
    found = hm.vmap(lambda a: hm.autograd.grad((a**3).sum(), a, create_graph=True)[0], in_axes=axis, out_axes=axis)
    close(found(x), 3 * x**2)
    found(x).sum().backward()
    assert x.grad is not None
    close(x.grad, 6 * x)
    with pytest.raises(hm.GradientError, match="inside of vmap it reaches an argument"):
        hm.vmap(lambda a: (a**3).sum().backward() or a)(x)


def test_elements_print_as_their_batch() -> None:
    seen: list[str] = []
    hm.vmap(lambda a: seen.append(f"{a} {a[0]}") or a)(hm.tensor([[1.0], [2.0]]))
    assert seen == ["Tensor([[1.],\n        [2.]]) Tensor([1., 2.])"]


def test_what_is_stored_is_a_copy() -> None:
    def fn(a: Any) -> Any:
        whole, part = hm.zeros(4), hm.zeros(2)
        whole.copy_(a)
        part[:] = a[1:3]
        a += 1
        return hm.concat([whole, part])

    x = hm.asarray(X)
    expected = hm.concat([x, x[:, 1:3]], axis=1)
    close(hm.vmap(fn)(x.clone()), expected)
    close(hm.trace(hm.vmap(lambda a: fn(a * 1)))(x), expected)


class Clip(hm.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * 1.0

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return hm.clip(g, -1.0, 1.0)


def test_a_custom_gradient_of_what_is_shared_gets_the_cotangent_of_all() -> None:
    w, x = hm.tensor([1.0, 2.0, 3.0, 4.0]), hm.asarray(X)
    found = hm.grad(lambda w: hm.vmap(lambda row: (Clip.apply(w) * row).sum())(x).sum())(w)
    close(found, hm.clip(x.sum(axis=0), -1.0, 1.0))
    inner = hm.vmap(lambda row: hm.grad(lambda v: (Clip.apply(v) * row * 9).sum())(w))(x)
    close(inner, hm.clip(x * 9, -1.0, 1.0))
    assert hm.vmap(lambda a: a + hm.psum(2.0, "i"), axis_name="i")(hm.zeros(3)).tolist() == [6.0] * 3


def test_a_traced_function_inside_of_a_functional_call_reads_what_is_given() -> None:
    class Scale(hm.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = hm.nn.Parameter(hm.tensor([1.0]))
            self.traced = hm.trace(lambda x: x * self.w)

        def forward(self, x: Any) -> Any:
            return self.traced(x)

    model = Scale()
    found = [hm.func.functional_call(model, {"w": hm.tensor([v])}, hm.tensor([1.0])).item() for v in (1.0, 2.0, 3.0)]
    assert found == [1.0, 2.0, 3.0] and model(hm.tensor([1.0])).item() == 1.0
