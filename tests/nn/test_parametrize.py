"""Parametrized weights: PyTorch's names, values by formula, and the same eagerly, traced, copied and loaded."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml import nn
from hybridml.nn.utils import parametrizations, parametrize, prune
from hybridml.nn.utils.parametrize import register_parametrization, remove_parametrizations


class Symmetric(nn.Module):
    def forward(self, X: hm.Tensor) -> hm.Tensor:
        return X.triu() + X.triu(1).T

    def right_inverse(self, A: hm.Tensor) -> hm.Tensor:
        return A.triu()


class RankOne(nn.Module):
    def forward(self, x: hm.Tensor, y: hm.Tensor) -> hm.Tensor:
        return x[:, None] * y

    def right_inverse(self, Z: hm.Tensor) -> tuple[hm.Tensor, hm.Tensor]:
        return Z[:, 0], Z[0] / Z[0, 0]


class Scaled(nn.Module):
    def __init__(self, factor: float = 2.0) -> None:
        super().__init__()
        self.factor, self.calls = factor, 0

    def forward(self, X: hm.Tensor) -> hm.Tensor:
        return X * self.factor


class Rows(nn.Module):
    def forward(self, X: hm.Tensor) -> hm.Tensor:
        return X[:2].astype(hm.float64)

    def right_inverse(self, X: hm.Tensor) -> hm.Tensor:
        return X * 0


def square(how: Callable[..., Any], *args: Any, **kwargs: Any) -> nn.Linear:
    layer = nn.Linear(3, 3)
    how(layer, "weight", *args, **kwargs)
    return layer


WAYS: dict[str, Callable[[nn.Linear, str], Any]] = {
    "two": lambda a, name: register_parametrization(register_parametrization(a, name, Symmetric()), name, nn.Tanh()),
    "rank one": lambda a, name: register_parametrization(a, name, RankOne()),
    "weight_norm": parametrizations.weight_norm,
    "spectral_norm": parametrizations.spectral_norm,
    "old weight_norm": nn.utils.weight_norm,
    "old spectral_norm": nn.utils.spectral_norm,
    "matrix_exp": parametrizations.orthogonal,
    "cayley": lambda a, name: parametrizations.orthogonal(a, name, "cayley"),
    "householder": lambda a, name: parametrizations.orthogonal(a, name, "householder", use_trivialization=False),
    "pruned": lambda a, name: prune.ln_structured(a, name, 1, 2, 0),
}
transfer = parametrize.transfer_parametrizations_and_params
X = np.random.default_rng(0).normal(size=(4, 3)).astype("f4")


def assert_same(one: nn.Module, other: nn.Module) -> None:
    assert list(one.state_dict()) == list(other.state_dict())
    for name, tensor in one.state_dict().items():
        np.testing.assert_allclose(tensor.numpy(), other.state_dict()[name].numpy(), 1e-4, 1e-5, err_msg=name)


@pytest.mark.parametrize("name", WAYS)
def test_a_traced_step_trains_as_an_eager_one_copies_and_files_do_as_well(name: str) -> None:
    hm.manual_seed(0)
    layer = square(WAYS[name])

    def trained(model: nn.Module, wrap: Callable[..., Any]) -> nn.Module:
        optimizer = hm.optim.Adam(model.parameters(), lr=0.05)

        def step(x: hm.Tensor) -> hm.Tensor:
            optimizer.zero_grad()
            loss = (model(x) ** 2).sum()
            loss.backward()
            optimizer.step()
            return loss

        step = wrap(step)
        for _ in range(3):
            step(hm.tensor(X))
        return model

    expected = trained(copy.deepcopy(layer), lambda step: step)
    assert_same(trained(copy.deepcopy(layer), hm.trace), expected)
    assert_same(trained(pickle.loads(pickle.dumps(layer)), lambda step: step), expected)
    assert not any(
        np.array_equal(p.detach(), q.detach()) for p, q in zip(layer.parameters(), expected.parameters(), strict=True)
    )
    fresh = square(WAYS[name])
    fresh.load_state_dict(expected.state_dict())
    assert_same(fresh, expected)
    assert type(fresh) is nn.Linear and repr(fresh) == repr(pickle.loads(pickle.dumps(fresh)))
    np.testing.assert_allclose(fresh.eval().weight.detach(), expected.eval().weight.detach(), 1e-6)


@pytest.mark.parametrize("name", WAYS)
def test_functions_of_parameters_second_derivatives_and_dtypes(name: str) -> None:
    hm.manual_seed(0)
    layer = square(WAYS[name]).to(hm.float64).eval()
    assert layer.weight.dtype == hm.float64
    names, values = zip(*layer.named_parameters(), strict=True)

    def loss(*given: hm.Tensor) -> hm.Tensor:
        return (
            hm.func.functional_call(layer, dict(zip(names, given, strict=True)), hm.tensor(X.astype("f8"))) ** 3
        ).sum()

    def slope(*given: hm.Tensor) -> hm.Tensor:
        return sum((g**2).sum() for g in hm.grad(loss, tuple(range(len(given))))(*given))

    along = [hm.tensor(np.random.default_rng(k).normal(size=v.shape)) for k, v in enumerate(values)]
    found = hm.grad(slope, tuple(range(len(values))))(*values)
    step = 1e-5
    ends = [slope(*(v.detach() + s * d for v, d in zip(values, along, strict=True))).item() for s in (step, -step)]
    directed = sum((g * d).sum() for g, d in zip(found, along, strict=True)).item()
    assert directed == pytest.approx((ends[0] - ends[1]) / (2 * step), rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("name", WAYS)
def test_everything_is_on_the_device_of_the_weight(name: str) -> None:
    layer = nn.Linear(3, 3).to(device="meta")
    WAYS[name](layer, "weight")
    assert {tensor.device for tensor in (layer.weight, *layer.state_dict().values())} == {hm.device("meta")}


def test_originals_and_assignments() -> None:
    layer = nn.Linear(3, 3)
    weight = layer.weight
    register_parametrization(layer, "weight", Symmetric())
    made = layer.parametrizations.weight
    assert made.original is weight and len(made) == 1 and isinstance(made, parametrize.ParametrizationList)
    assert list(layer.state_dict()) == ["bias", "parametrizations.weight.original"]
    wanted = np.array([[1, 2, 3], [2, 5, 6], [3, 6, 9]], "f4")
    layer.weight = hm.tensor(wanted)
    np.testing.assert_array_equal(layer.weight.detach(), wanted)
    np.testing.assert_array_equal(made.original.detach(), np.triu(wanted))
    assign = hm.trace(lambda value: setattr(layer, "weight", value) or layer.weight.sum())
    for k in range(2):
        assert assign(hm.tensor(wanted + k)).item() == wanted.sum() + 9 * k == layer.weight.sum().item()
    remove_parametrizations(layer, "weight", leave_parametrized=False)
    assert layer.weight is weight and np.array_equal(weight.detach(), np.triu(wanted + 1))
    assert not hasattr(layer, "parametrizations") and list(layer.state_dict()) == ["bias", "weight"]


def test_several_originals_are_new_parameters() -> None:
    layer = square(register_parametrization, RankOne())
    one, two = layer.parametrizations.weight.original0, layer.parametrizations.weight.original1
    assert one.requires_grad and {id(p) for p in layer.parameters()} >= {id(one), id(two)}
    value = np.outer([1, 2, 3], [4, 5, 6]).astype("f4")
    layer.weight = hm.tensor(value)
    np.testing.assert_allclose(layer.weight.detach(), value, 1e-6)
    with pytest.raises(ValueError, match="computed from 2 tensors"):
        remove_parametrizations(layer, "weight", leave_parametrized=False)
    remove_parametrizations(layer, "weight")
    assert isinstance(layer.weight, nn.Parameter) and layer.weight.requires_grad
    frozen = nn.Linear(3, 3).requires_grad_(False)
    parametrizations.weight_norm(frozen)
    assert not any(p.requires_grad for p in frozen.parameters()) and len(list(frozen.parameters())) == 3
    remove_parametrizations(frozen, "weight")
    assert isinstance(frozen.weight, nn.Parameter) and not frozen.weight.requires_grad


def test_unsafe_ones_change_shape_and_dtype_buffers_stay_buffers_and_tied_weights_tied() -> None:
    layer = nn.Linear(3, 4, bias=False)
    weight = layer.weight
    register_parametrization(layer, "weight", Rows(), unsafe=True)
    assert layer.weight.shape == (2, 3) and layer.weight.dtype == hm.float64
    assert remove_parametrizations(layer, "weight").weight is weight and weight.shape == (2, 3)
    norm = register_parametrization(nn.BatchNorm1d(2), "running_var", nn.Softplus())
    assert list(norm.named_buffers())[-1][0] == "parametrizations.running_var.original"
    assert "running_var" in dict(remove_parametrizations(norm, "running_var").named_buffers())
    table, head = nn.Embedding(4, 3), nn.Linear(3, 4)
    head.weight = table.weight
    register_parametrization(head, "weight", nn.Tanh())
    assert head.parametrizations.weight.original is table.weight
    np.testing.assert_allclose(head.weight.detach(), np.tanh(table.weight.detach()), 1e-6)


def test_a_traced_function_sees_other_parametrizations_and_their_attributes() -> None:
    layer, x = square(register_parametrization, Scaled()), hm.tensor(X)
    traced = hm.trace(lambda x: layer(x))
    changes: list[Callable[[], Any]] = [
        lambda: None,
        lambda: setattr(layer.parametrizations.weight[0], "factor", 3.0),
        lambda: setattr(layer.parametrizations.weight[0], "factor", 4.0),
        lambda: register_parametrization(layer, "weight", nn.Tanh()),
        lambda: remove_parametrizations(layer, "weight"),
        lambda: prune.l1_unstructured(layer, "weight", 3),
        lambda: prune.l1_unstructured(layer, "weight", 3),
        lambda: prune.remove(layer, "weight"),
    ]
    for change in changes:
        change()
        np.testing.assert_allclose(traced(x).detach(), layer(x).detach(), 1e-5)
    assert not any("factor 3.0 -> 4.0" in line for line in traced.retraces)  # it is an input by then


def test_cached_values() -> None:
    layer = square(register_parametrization, Scaled())
    with parametrize.cached():
        with parametrize.cached():
            first = layer.weight
        with hm.no_grad():
            assert not layer.weight.requires_grad
        assert layer.weight is first and first.requires_grad
        given = {"parametrizations.weight.original": hm.ones((3, 3)), "bias": hm.zeros(3)}
        assert hm.func.functional_call(layer, given, hm.ones((1, 3))).tolist() == [[6.0] * 3]
        traced = hm.trace(lambda x: layer(x))(hm.tensor(X))
    assert layer.weight is not first
    np.testing.assert_allclose(traced.detach(), layer(hm.tensor(X)).detach(), 1e-6)


@pytest.mark.parametrize("steps", [3, 40])
@pytest.mark.parametrize("how", [parametrizations.spectral_norm, parametrizations.weight_norm])
def test_cached_values_of_loops(how: Callable[..., Any], steps: int) -> None:
    hm.manual_seed(0)
    cell = nn.RNNCell(3, 3)
    for name in ("weight_hh", "weight_ih"):
        how(cell, name)

    def run(cell: nn.RNNCell, xs: hm.Tensor) -> hm.Tensor:
        with parametrize.cached():
            h = hm.zeros((2, 3))
            for x in xs:
                h = cell(x, h)
            loss = ((h + cell.weight_hh.sum()) ** 2).sum()
        loss.backward()
        return loss

    twin, xs = copy.deepcopy(cell), hm.random.normal((steps, 2, 3))
    traced = hm.trace(lambda xs: run(twin, xs))
    assert traced(xs).item() == pytest.approx(run(cell, xs).item(), rel=1e-4)
    assert_same(twin, cell)
    for one, other in zip(twin.parameters(), cell.parameters(), strict=True):
        np.testing.assert_allclose(one.grad, other.grad, 1e-3, 1e-5)


def test_transferred_parametrizations_are_shared() -> None:
    layer = square(parametrizations.orthogonal)
    other = transfer(layer, nn.Linear(3, 3))
    np.testing.assert_array_equal(other.weight.detach(), layer.weight.detach())
    assert other.parametrizations.weight.original is layer.parametrizations.weight.original
    assert parametrize.is_parametrized(other) and not parametrize.is_parametrized(other, "bias")
    assert parametrize.type_before_parametrizations(other) is nn.Linear
    assert transfer(nn.Linear(1, 1), other) is other and transfer(other, other) is other
    np.testing.assert_array_equal(other.weight.detach(), layer.weight.detach())


# --- those that are there ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("dim", "axes"), [(0, (1, 2)), (1, (0, 2)), (-1, None), (None, None)])
def test_weight_norm_is_length_times_direction(dim: int | None, axes: Any) -> None:
    layer = nn.Conv1d(3, 4, 2)
    weight = layer.weight.detach().numpy().copy()
    parametrizations.weight_norm(layer, dim=dim)
    g, v = layer.parametrizations.weight.original0, layer.parametrizations.weight.original1
    norms = np.sqrt((weight**2).sum(axes, keepdims=axes is not None))
    np.testing.assert_allclose(g.detach(), norms, 1e-6)
    np.testing.assert_allclose(layer.weight.detach(), weight, 1e-5)
    with hm.no_grad():
        v *= 3.0
        g *= 2.0
    np.testing.assert_allclose(layer.weight.detach(), 2 * weight, 1e-5)


def test_weight_norm_loads_what_the_older_one_saved() -> None:
    older = nn.Sequential(nn.ReLU(), nn.utils.weight_norm(nn.Linear(3, 4)))
    newer = nn.Sequential(nn.ReLU(), parametrizations.weight_norm(nn.Linear(3, 4)))
    assert newer.load_state_dict(older.state_dict()) == ([], [])
    np.testing.assert_array_equal(newer[1].weight.detach(), older[1].weight.detach())
    half = {key: value for key, value in older.state_dict().items() if not key.endswith("_v")}
    with pytest.raises(ValueError, match=r"missing: +1\.parametrizations\.weight\.original1"):
        newer.load_state_dict(half)


def test_spectral_norm_moves_its_vectors_in_training() -> None:
    hm.manual_seed(0)
    layer = parametrizations.spectral_norm(nn.ConvTranspose1d(3, 4, 2), n_power_iterations=2)
    held = layer.parametrizations.weight[0]
    matrix = np.moveaxis(layer.parametrizations.weight.original.detach().numpy(), 1, 0).reshape(4, -1)
    u, v = held._u.numpy().copy(), held._v.numpy().copy()
    layer.eval()
    before = layer.weight.detach().numpy()
    np.testing.assert_allclose(before, layer.parametrizations.weight.original.detach() / (u @ matrix @ v), 1e-5)
    np.testing.assert_array_equal(held._u, u)
    assert u @ matrix @ v == pytest.approx(np.linalg.norm(matrix, 2), rel=1e-4)  # from the start
    layer.train()
    assert layer.weight.shape == before.shape
    for _ in range(2):
        u = matrix @ v / np.linalg.norm(matrix @ v)
        v = matrix.T @ u / np.linalg.norm(matrix.T @ u)
    np.testing.assert_allclose(held._u, u, 1e-4, 1e-5)
    np.testing.assert_allclose(held._v, v, 1e-4, 1e-5)
    vector = parametrizations.spectral_norm(nn.Linear(2, 3).eval(), "bias")
    assert not vector.parametrizations.bias[0].training and abs(hm.linalg.vector_norm(vector.bias).item() - 1) < 1e-6


@pytest.mark.parametrize("shape", [(3, 3), (5, 3), (3, 5)])
@pytest.mark.parametrize("trivial", [True, False])
@pytest.mark.parametrize("how", ["matrix_exp", "cayley", "householder"])
def test_orthogonal_weights(how: Any, trivial: bool, shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(0)
    layer = nn.Linear(shape[1], shape[0])
    weight = layer.weight.detach().numpy().copy()
    parametrizations.orthogonal(layer, orthogonal_map=how, use_trivialization=trivial)

    def tall(x: np.ndarray) -> np.ndarray:
        return x.T if shape[0] < shape[1] else x

    if trivial or how == "householder":  # it begins with the Q of QR, whose R has a positive diagonal
        q, r = np.linalg.qr(tall(weight))
        np.testing.assert_allclose(tall(layer.weight.detach().numpy()), q * np.sign(np.diag(r)), 1e-4, 1e-5)
    original = layer.parametrizations.weight.original
    start = original.detach().numpy().copy()
    with hm.no_grad():
        original.copy_(hm.tensor(start + rng.normal(size=shape).astype("f4") * (start == 0)))
    found, x = tall(layer.weight.detach().numpy()), tall(original.detach().numpy())
    n, k = x.shape
    np.testing.assert_allclose(found.T @ found, np.eye(k), atol=1e-5)
    full = np.concatenate([np.tril(x), np.zeros((n, n - k))], 1)
    skew, one = full - full.T, np.eye(n)
    if how == "matrix_exp":
        values, vectors = np.linalg.eigh(1j * skew)
        expected = ((vectors * np.exp(-1j * values)) @ vectors.conj().T).real[:, :k]
    elif how == "cayley":
        expected = np.linalg.solve(one - skew / 2, one + skew / 2)[:, :k]
    else:
        expected = one
        for v in (np.tril(x, -1) + np.eye(n, k)).T:
            expected = expected @ (one - 2 * np.outer(v, v) / (v @ v))
        expected = expected[:, :k] * np.sign(np.diag(x))
    base = np.eye(n) if not trivial else layer.parametrizations.weight[0].base.numpy()
    np.testing.assert_allclose(found, base @ expected, 1e-4, 1e-4)


def test_orthogonal_weights_are_assigned_and_complex_ones_unitary() -> None:
    q = np.linalg.qr(X[:3])[0]
    for layer in (nn.Linear(3, 3), nn.Linear(3, 3)):
        parametrizations.orthogonal(layer)
        layer.weight = hm.tensor(q)
        with pytest.raises(ValueError, match="of dtype float32, got float64"):
            layer.weight = hm.eye(3, dtype=hm.float64)
        np.testing.assert_allclose(layer.weight.detach(), q, 1e-5, 1e-6)
    nn.init.zeros_(remove_parametrizations(layer, "weight").weight)
    np.testing.assert_array_equal(abs(parametrizations.orthogonal(layer).weight.detach().numpy()), np.eye(3))
    layer = nn.Module()
    layer.weight = nn.Parameter(hm.tensor((X[:3] + 1j * X[1:]).astype("c8")))
    parametrizations.orthogonal(layer)
    with hm.no_grad():
        layer.parametrizations.weight.original.mul_(hm.tensor(0.5 + 0.7j))
    w = layer.weight.detach().numpy()
    np.testing.assert_allclose(w.conj().T @ w, np.eye(3), atol=1e-5)
    with pytest.raises(ValueError, match="does not take complex"):
        parametrizations.orthogonal(remove_parametrizations(layer, "weight"), orthogonal_map="householder")


# --- errors -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda a: register_parametrization(a, "kernel", nn.Tanh()), ValueError, "no parameter or buffer 'kernel'"),
        (lambda a: register_parametrization(a, "weight", hm.tanh), ValueError, "is a Module, got function"),
        (lambda a: register_parametrization(a, "weight", nn.Flatten(0)), ValueError, "shape of the tensor may not"),
        (lambda a: register_parametrization(a, "weight", Rows()), ValueError, "dtype of the tensor may not change"),
        (lambda a: parametrizations.weight_norm(parametrizations.weight_norm(a)), ValueError, "to be the first"),
        (lambda a: register_parametrization(nn.LazyLinear(3), "weight", nn.Tanh()), ValueError, "no shape yet"),
        (lambda a: transfer(square(register_parametrization, nn.Tanh()), a, "bias"), ValueError, "none on 'bias'"),
        (lambda a: transfer(square(register_parametrization, nn.ELU()), nn.utils.weight_norm(a)), ValueError, "remove"),
        (lambda a: remove_parametrizations(a, "weight"), ValueError, "has none on 'weight'"),
        (lambda a: parametrize.ParametrizationList([], a.weight), ValueError, "one module or more"),
        (lambda a: parametrizations.weight_norm(a, dim=2), IndexError, "axis 2 does not exist"),
        (lambda a: parametrizations.spectral_norm(a, dim=2), IndexError, "axis 2 does not exist"),
        (lambda a: parametrizations.spectral_norm(a, n_power_iterations=0), ValueError, "1 or more"),
        (lambda a: parametrizations.orthogonal(a, "bias"), ValueError, "takes a matrix"),
        (lambda a: parametrizations.orthogonal(a, orthogonal_map="qr"), ValueError, "orthogonal_map is one of"),
        (lambda a: setattr(register_parametrization(a, "weight", nn.Tanh()), "weight", 0), RuntimeError, "Tanh does"),
        (lambda a: setattr(nn.utils.weight_norm(a), "weight", 0), AttributeError, "weight_g and weight_v"),
        (lambda a: hm.trace(lambda: parametrizations.weight_norm(a))(), RuntimeError, "do it outside"),
        (lambda a: hm.trace(lambda: remove_parametrizations(a, "weight"))(), RuntimeError, "do it outside"),
    ],
)  # fmt: skip
def test_errors_leave_the_layer_as_it_is(call: Callable[[nn.Linear], Any], error: type[Exception], text: str) -> None:
    layer = nn.Linear(3, 3)
    before = layer.weight.detach().numpy().copy()
    with pytest.raises(error, match=text):
        call(layer)
    assert layer.weight.shape == before.shape and layer.bias.shape == (3,)
    if list(layer.state_dict()) == ["weight", "bias"]:
        np.testing.assert_array_equal(layer.weight.detach(), before)


def test_inverses_that_do_not_fit() -> None:
    layer = square(register_parametrization, RankOne())
    layer.parametrizations.weight[0].right_inverse = lambda Z: (Z[0],)
    with pytest.raises(ValueError, match="gave 1 tensors, there are 2"):
        layer.weight = hm.ones((3, 3))
    layer = square(parametrizations.orthogonal, "cayley", use_trivialization=False)
    with pytest.raises(NotImplementedError, match="cayley has no inverse"):
        layer.weight = hm.ones((3, 3))
    with pytest.raises(ValueError, match=r"is of shape \(3, 3\)"):
        square(parametrizations.orthogonal).weight = hm.ones((2, 3))
