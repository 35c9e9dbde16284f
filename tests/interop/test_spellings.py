"""PyTorch's, NumPy's and JAX's spellings: each in both styles beside the call by our own names."""

from __future__ import annotations

import copy
import importlib
import inspect
import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml.core.spellings import OTHER_NAMES, accepted, pytorchs
from hybridml.interop.pytorch.hints import HINTS, OF_MODULE

X = np.array([[3.0, 1.0, 2.0], [4.0, 6.0, 5.0]], np.float32)

# What fingers type, and what it means.
SAME: list[tuple[str, str]] = [
    ("x.sum(dim=0)", "x.sum(axis=0)"),
    ("x.sum(dim=(0, 1))", "x.sum()"),
    ("x.sum(axis=0, keepdim=True)", "x.sum(axis=0, keepdims=True)"),
    ("hm.mean(x, dim=1, keepdim=True)", "hm.mean(x, axis=1, keepdims=True)"),
    ("x.any(dim=1)", "x.any(axis=1)"),
    ("x.argmax(dim=1, keepdim=True)", "x.argmax(axis=1, keepdims=True)"),
    ("x.cumsum(dim=1)", "x.cumsum(axis=1)"),
    ("x.logsumexp(dim=1)", "hm.logsumexp(x, axis=1)"),
    ("hm.argsort(x, dim=0)", "hm.argsort(x, axis=0)"),
    ("x.std(unbiased=True)", "x.std(correction=1)"),
    ("x.var(axis=0, ddof=1)", "x.var(axis=0, correction=1)"),
    ("x.var(0, unbiased=False)", "x.var(axis=0)"),
    ("x.std(dim=0)", "x.std(axis=0, correction=1)"),
    ("hm.var(x, dim=0, correction=0)", "x.var(axis=0)"),
    ("hm.cat([x, x], dim=1)", "hm.concat([x, x], axis=1)"),
    ("hm.stack((x, x), dim=-1)", "hm.stack((x, x), axis=-1)"),
    ("x.split(1, dim=0)", "hm.split(x, 1, axis=0)"),
    ("x.split(split_size=1, dim=0)", "hm.split(x, 1, axis=0)"),
    ("x.chunk(3, dim=1)", "hm.chunk(x, 3, axis=1)"),
    ("x.unbind(dim=1)", "hm.unstack(x, axis=1)"),
    ("x.unsqueeze(dim=0)", "hm.expand_dims(x, 0)"),
    ("x[None].squeeze(dim=0)", "x"),
    ("x.max(1, keepdim=True)", "(hm.max(x, axis=1, keepdims=True), hm.argmax(x, 1, keepdims=True))"),
    ("hm.sort(x, 1)", "hm.sort(x, axis=1)"),
    ("x.std(0, keepdim=True)", "x.std(axis=0, keepdims=True, correction=1)"),
    ("x.std(keepdim=True)", "x.std(keepdims=True)"),
    ("x.max(keepdim=True)", "x.max(keepdims=True)"),
    ("hm.squeeze(x[None], dim=(0, 1))", "x"),
    ("hm.squeeze(x, dim=0)", "x"),
    ("hm.squeeze(x[None], dim=np.int64(0))", "x"),
    ("hm.squeeze(x[None], axis=np.int64(0))", "x"),
    ("x[None].squeeze(np.int64(0))", "x"),
    ("x[None].squeeze(dim=None)", "x"),
    ("hm.squeeze(hm.tensor(1.0), dim=0)", "hm.tensor(1.0)"),
    ("hm.transpose(x, 0, 1)", "x.T"),
    ("hm.transpose(x, dim0=0, dim1=1)", "x.T"),
    ("hm.transpose(x, (1, 0))", "x.T"),
    ("hm.transpose(x, axes=(1, 0))", "x.T"),
    ("hm.transpose(x)", "x.T"),
    ("x.transpose(dim0=0, dim1=-1)", "x.T"),
    ("x[None].transpose(1, 2, 0)", "hm.permute_dims(x[None], (1, 2, 0))"),
    ("hm.permute(x, (1, 0))", "x.T"),
    ("hm.permute(x, dims=(1, 0))", "x.T"),
    ("x.permute(dims=(1, 0))", "x.T"),
    ("hm.swapaxes(x, axis1=0, axis2=1)", "x.T"),
    ("hm.swapdims(x, dim0=0, dim1=1)", "x.T"),
    ("hm.clamp(x, min=2)", "hm.clip(x, 2)"),
    ("hm.clamp(x, 2, 4)", "hm.clip(x, 2, 4)"),
    ("hm.linspace(0, 1, steps=5)", "hm.linspace(0, 1, 5)"),
    ("hm.linspace(start=0, end=1, steps=5)", "hm.linspace(0, 1, 5)"),
    ("hm.arange(start=1, end=9, step=2)", "hm.arange(1, 9, 2)"),
    ("hm.zeros(size=(2, 3))", "hm.zeros((2, 3))"),
    ("hm.ones(size=(2, 3), dtype=hm.int8)", "hm.ones((2, 3), dtype=hm.int8)"),
    ("hm.stack(tensors=[x, x], dim=1)", "hm.stack([x, x], 1)"),
    ("hm.cat(tensors=[x, x])", "hm.concat([x, x])"),
    ("x.tile(2, 1)", "hm.tile(x, (2, 1))"),
    ("hm.tile(x, dims=(2, 1))", "hm.tile(x, (2, 1))"),
    ("hm.tile(x, 2)", "hm.tile(x, (2,))"),
    ("x[:1].expand(size=(2, 3))", "hm.broadcast_to(x[:1], (2, 3))"),
    ("hm.narrow(x, 1, -2, 1)", "x[:, 1:2]"),
    ("x.flip(dims=(0,))", "hm.flip(x, axis=(0,))"),
    ("hm.roll(x, shifts=1, dims=1)", "hm.roll(x, 1, axis=1)"),
    ("hm.roll(x, 1, 0)", "hm.roll(x, 1, axis=0)"),
    ("x.gather(dim=1, index=i)", "hm.gather(x, 1, i)"),
    ("x.topk(2, dim=1)", "hm.topk(x, 2, axis=1)"),
    ("hm.triu(x, diagonal=1)", "hm.triu(x, k=1)"),
    ("hm.triu_indices(row=2, col=3, offset=1)", "hm.triu_indices(2, k=1, m=3)"),
    ("hm.tril_indices(3, offset=-1)", "hm.tril_indices(3, k=-1)"),
    ("hm.zeros_like(input=x)", "hm.zeros_like(x)"),
    ("hm.ones_like(input=x, dtype=hm.int8)", "hm.ones_like(x, dtype=hm.int8)"),
    ("hm.full_like(input=x, fill_value=2)", "hm.full_like(x, 2)"),
    ("hm.empty_like(input=x)", "hm.empty_like(x)"),
    ("hm.as_tensor(data=[1.0, 2.0])", "hm.asarray([1.0, 2.0])"),
    ("hm.moveaxis(x, source=0, destination=1)", "x.T"),
    ("hm.movedim(x, source=0, destination=1)", "x.T"),
    ("hm.quantile(x, q=0.5, dim=1)", "hm.quantile(x, 0.5, axis=1)"),
    ("hm.percentile(x, q=50, axis=0)", "hm.percentile(x, 50, axis=0)"),
    ("hm.take_along_dim(x, indices=i, dim=1)", "hm.take_along_axis(x, i, axis=1)"),
    ("hm.diagonal(x, dim1=1, dim2=0)", "hm.diagonal(x, axis1=1, axis2=0)"),
    ("hm.clip(x, a_min=2, a_max=4)", "hm.clip(x, 2, 4)"),
    ("hm.linalg.norm(x, dim=1)", "hm.linalg.norm(x, axis=1)"),
    ("hm.norm(x, p=1, dim=0)", "abs(x).sum(axis=0)"),
    ("x.norm(dim=1, keepdim=True)", "hm.linalg.vector_norm(x, axis=1, keepdims=True)"),
    ("x.norm()", "hm.linalg.norm(x)"),
    ("hm.softmax(x, dim=-1)", "hm.nn.functional.softmax(x, -1)"),
    ("hm.nn.functional.softmax(x, axis=0)", "hm.nn.functional.softmax(x, 0)"),
    ("x.softmax(0)", "hm.nn.functional.softmax(x, 0)"),
    ("x.log_softmax(dim=1)", "hm.nn.functional.log_softmax(x, 1)"),
    ("hm.fft.fft(x, dim=0)", "hm.fft.fft(x, axis=0)"),
    ("x.max(dim=1).values", "x.max(axis=1)"),
    ("x.max(dim=1)[1]", "x.argmax(axis=1)"),
    ("hm.min(x, dim=0, keepdim=True)", "(x.min(axis=0, keepdims=True), x.argmin(axis=0, keepdims=True))"),
    ("x.sort(dim=1, descending=True)", "(hm.sort(x, axis=1, descending=True), hm.argsort(x, axis=1, descending=True))"),
    ("x.median(dim=0).values", "x.min(axis=0)"),
    ("x.median(dim=1).indices", "hm.tensor([2, 2])"),
    ("hm.add(x, x, alpha=2)", "x + 2 * x"),
    ("x.sub(1, alpha=3)", "x - 3"),
    ("x.clone().add_(x, alpha=2)", "x * 3"),
    ("hm.zeros(2, 3)", "hm.zeros((2, 3))"),
    ("hm.ones(2, 3, dtype=hm.int8)", "hm.ones((2, 3), dtype=hm.int8)"),
    ("hm.zeros((2,), hm.int8)", "hm.zeros((2,), dtype=hm.int8)"),
    ("hm.full(size=(2,), fill_value=1.5)", "hm.full((2,), 1.5)"),
    ("x.new_zeros(2, 3)", "hm.zeros((2, 3))"),
    ("x.double().new_ones((3,))", "hm.ones((3,), dtype=hm.float64)"),
    ("x.new_full((2,), 7)", "hm.full((2,), 7, dtype=hm.float32)"),
    ("x.new_tensor([1, 2])", "hm.tensor([1.0, 2.0])"),
    ("hm.array([1.0, 2.0])", "hm.tensor([1.0, 2.0])"),
    ("x.repeat(2, 2)", "hm.tile(x, (2, 2))"),
    ("x.repeat(2)", "hm.repeat(x, 2)"),
    ("x.repeat_interleave(2, dim=1)", "hm.repeat(x, 2, axis=1)"),
    ("x.t()", "x.T"),
    ("x.mm(x.t())", "x @ x.T"),
    ("hm.flatten(x[None], 1)", "x[None].reshape(1, -1)"),
    ("x.narrow(1, 1, 2)", "x[:, 1:3]"),
    ("x.select(1, 0)", "x[:, 0]"),
    ("x.lerp(x + 1, 0.5)", "x + 0.5"),
    ("x.data", "x"),
    ("x.type(hm.double)", "x.astype(hm.float64)"),
    ("x.long()", "x.astype(hm.int64)"),
    ("x.half().float()", "x"),
    ("x.scatter_add(1, i, hm.ones(2, 1))", "hm.scatter_reduce(x, 1, i, hm.ones((2, 1)), 'sum')"),
    ("x.clone().exp_().log_()", "x.exp().log()"),
    ("x.clone().clamp_min(2)", "hm.maximum(x, 2)"),
    ("hm.addcmul(x, x, x, value=2)", "x + 2 * x * x"),
    ("hm.compile(lambda a: a * 2)(x)", "x * 2"),
    ("hm.jit(lambda a: a * 2)(x)", "x * 2"),
    ("hm.amax(x, dim=1)", "x.max(axis=1)"),
    ("x.amin(dim=(0, 1), keepdim=True)", "x.min(axis=(0, 1), keepdims=True)"),
    ("x.to('cpu', non_blocking=True)", "x"),
    ("x.block_until_ready() * 2", "x * 2"),
]
VALUES: list[tuple[str, Any]] = [
    ("x.size()", (2, 3)),
    ("x.size(1)", 3),
    ("x.size", 6),
    ("x.size * 2", 12),
    ("x.stride()", (3, 1)),
    ("x.T.is_contiguous()", False),
    ("x.is_floating_point()", True),
    ("x.element_size()", 4),
    ("x.nelement() == hm.numel(x) == x.numel()", True),
    ("x.equal(x + 0)", True),
    ("x.equal(x + 1)", False),
    ("hm.is_tensor(x)", True),
    ("isinstance(x.shape, hm.Size)", True),
    ("isinstance(x.dtype, hm.dtype)", True),
    ("hm.float is hm.float32 and hm.long is hm.int64 and hm.double is hm.float64", True),
    ("x.type()", "hybridml.float32"),
    ("hm.cuda.is_available() or hm.backends.mps.is_available() or hm.accelerator.is_available()", False),
    ("hm.rand(size=(2, 3)).shape", (2, 3)),
    ("__import__('hybridml.optim.lr_scheduler', fromlist=['StepLR']).StepLR is hm.optim.StepLR", True),
    ("hm.rand_like(input=x).shape", (2, 3)),
    ("[i.tolist() for i in hm.nonzero(x > 4, as_tuple=True)]", [[1, 1], [1, 2]]),
    ("hm.nonzero(x > 4, as_tuple=False).tolist()", [[1, 1], [1, 2]]),
    ("(x > 4).nonzero(as_tuple=False).tolist() == hm.argwhere(x > 4).tolist()", True),
    ("hm.bernoulli(input=hm.ones(2)).tolist()", [True, True]),
    ("hm.multinomial(input=hm.tensor([0.0, 1.0]), num_samples=1).tolist()", [1]),
    ("hm.randn_like(input=x, dtype=hm.float64).shape", (2, 3)),
    ("hm.random.normal(0, 1, (4,)).shape", (4,)),
    ("hm.random.normal(0.0, 1.0, 4).shape", (4,)),
    ("hm.random.normal(loc=0, scale=1, size=(4,)).shape", (4,)),
    ("hm.normal(0.0, 1.0, (4,)).shape", (4,)),
    ("hm.random.uniform(-1, 1, (4,)).shape", (4,)),
    ("hm.random.uniform(-1.0, 1.0, size=(4,)).shape", (4,)),
    ("hm.random.uniform((4,), -1.0, 1.0).shape", (4,)),
    ("(x * 2).grad_fn is None", True),
    ("isinstance(x, hm.Array)", True),
    ("f'{x.sum()} {x[0, 0]:.2f} {x[0]}'", "21.0 3.00 Tensor([3., 1., 2.])"),
    ("f'{hm.tensor(3)} {hm.tensor(True)}'", "3 True"),
    ("hm.geomspace(1, 100, 3).tolist()", [1.0, 10.0, 100.0]),
    ("hm.random.default_rng(5).random((2, 3)).tolist() == hm.Generator(5).rand(2, 3).tolist()", True),
    ("hm.random.default_rng().get_state().tolist() == hm.random.default_rng().get_state().tolist()", False),
    ("hm.nn.Linear(3, 2).to('cpu', non_blocking=True).in_features", 3),
    ("len(hm.data.DataLoader(hm.data.TensorDataset(x), pin_memory=True, persistent_workers=False))", 2),
]
MADE = (
    "arange(3.0", "linspace(0, 1, 3", "logspace(0, 1, 3", "eye(3", "full((2,), 1.0", "ones(3", "zeros(3", "empty(3",
    "ones_like(x", "zeros_like(x", "full_like(x, 1.0", "empty_like(x", "rand(3", "randn(3", "rand_like(x",
    "tensor([1.0]", "randn_like(x", "asarray(x",
)  # fmt: skip


def evaluate(program: str, x: hm.Tensor) -> Any:
    return eval(program, {"hm": hm, "np": np, "x": x, "i": hm.tensor([[1], [0]])})


def arrays(found: Any) -> list[np.ndarray]:
    return [t.numpy() for t in (found if isinstance(found, tuple | list) else (found,))]


@pytest.mark.parametrize(("typed", "meant"), SAME, ids=[typed for typed, _ in SAME])
def test_spelling(typed: str, meant: str) -> None:
    x = hm.tensor(X)
    wanted = arrays(evaluate(meant, x))
    for _ in range(2):  # the first call of a row writes its text
        found = arrays(evaluate(typed, x))
        assert [a.dtype for a in found] == [a.dtype for a in wanted]
        for mine, theirs in zip(found, wanted, strict=True):
            np.testing.assert_array_equal(mine, theirs)
    traced = arrays(hm.trace(lambda x: evaluate(typed, x), strict=True)(x)) if "compile" not in typed else found
    for mine, theirs in zip(traced, wanted, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-6)


@pytest.mark.parametrize(("typed", "value"), VALUES, ids=[typed for typed, _ in VALUES])
def test_value(typed: str, value: Any) -> None:
    assert evaluate(typed, hm.tensor(X)) == value


@pytest.mark.parametrize("call", MADE)
def test_everything_that_is_made_may_require_a_gradient(call: str) -> None:
    x = hm.tensor(X)
    made = evaluate(f"hm.{call}, requires_grad=True, device='cpu')", x)
    assert made.requires_grad and made.is_leaf
    assert not evaluate(f"hm.{call}, requires_grad=False)", x).requires_grad
    assert evaluate(f"hm.{call}, dtype=hm.float64)", x).dtype is hm.float64


ERRORS = [
    ("x.sum(axis=1, dim=0)", TypeError, "got axis= and dim=, which are one argument"),
    ("hm.squeeze(x, axis=1, dim=0)", TypeError, "got axis= and dim="),
    ("hm.nn.functional.softmax(x, dim=0, axis=1)", TypeError, "axis= and dim=|dim= and axis="),
    ("x.sum(dims=0)", TypeError, "unexpected keyword argument 'dims'"),
    ("x.sum(dim=7)", hm.AxisError, "axis 7 is out of range|7"),
    ("hm.stack(dim=0)", TypeError, "missing"),
    ("hm.sum(x, None, False, None, 0)", TypeError, "takes from 1 to 4 positional arguments but 5 were given"),
    ("hm.triu_indices(4, 4)", hm.ArgumentError, r"triu_indices\(row=4, col=4\)"),
    ("hm.tril_indices(5, 5, 1)", hm.ArgumentError, r"tril_indices\(row=5, col=5\)"),
    ("hm.zeros()", hm.ArgumentError, "give the shape once"),
    ("hm.zeros(2, size=2)", hm.ArgumentError, "give the shape once"),
    ("hm.squeeze(x, dim=2)", hm.AxisError, "axis 2 does not exist"),
    ("hm.zeros(2, 3, hm.int8)", hm.ArgumentError, "sizes must be integers"),
    ("x.repeat(2, 0)", hm.ArgumentError, r"x.repeat\(2, axis=0\)"),
    ("x.matmull", AttributeError, "no attribute 'matmull'"),
    ("x.unsqueeze_(0)", AttributeError, r"x = x.unsqueeze\(dim\)"),
    ("hm.matmull", AttributeError, "did you mean 'matmul'"),
    ("hm.FloatTensor([1.0])", AttributeError, "hm.tensor"),
    ("hm.random.normal(loc=0.0, scale=-1.0, size=(3,))", hm.ArgumentError, "std must be 0 or more"),
    ("x.narrow(0, 1, 5)", hm.ArgumentError, "narrow"),
    ("hm.nn.Liner(3, 4)", AttributeError, "module 'hybridml.nn' has no attribute 'Liner'; did you mean 'Linear'"),
    ("hm.nn.gelu(x)", AttributeError, "write hm.nn.functional.gelu"),
    ("hm.optim.lr_scheduler.StepLr", AttributeError, "did you mean 'StepLR'"),
    ("hm.autograd.set_detect_anomaly(True)", AttributeError, "hm.debug_nans"),
    ("hm.testing.assert_close(x, x)", AttributeError, "numpy.testing.assert_allclose"),
    ("hm.tree_flatten(x)", AttributeError, "hm.tree_leaves"),
    ("x.max(1).indices", AttributeError, r"x.max\(dim=1\)"),
    ("hm.cuda.amp", AttributeError, "'hybridml.cuda' has no attribute 'amp'; write"),
    ("hm.trace(x)", hm.ArgumentError, "got Tensor; the sum of a diagonal is hm.linalg.trace"),
    ("hm.set_printoptions(profile='long')", hm.ArgumentError, "profile must be one of"),
    ("x[None].transpose(0, 1, dim0=2)", hm.ArgumentError, "two axes"),
    ("x.transpose(dim0=0)", hm.ArgumentError, "two axes"),
    ("x[None].t()", hm.ArgumentError, "at most two axes"),
]  # fmt: skip


@pytest.mark.parametrize(("program", "kind", "message"), ERRORS, ids=[program for program, _, _ in ERRORS])
def test_errors(program: str, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        evaluate(program, hm.tensor(X))


def test_in_place() -> None:
    w = hm.zeros(3, 3, requires_grad=True)
    w.data.normal_(0.0, 0.02)
    assert w.requires_grad and float(w.abs().max()) > 0
    w.data = hm.ones((3, 3))
    assert w.tolist() == [[1.0] * 3] * 3 and w.is_leaf
    with pytest.raises(hm.GradientError, match="uniform_"):
        w.uniform_()
    with hm.no_grad():
        assert w.uniform_(1.0, 2.0) is w and float(w.min()) >= 1
        assert set(w.bernoulli_(0.5).reshape(-1).tolist()) <= {0.0, 1.0}
    x = hm.tensor(X, requires_grad=True)
    (x * 1).tanh_().sum().backward()
    assert x.grad is not None
    np.testing.assert_allclose(x.grad.numpy(), 1 - np.tanh(X) ** 2, rtol=1e-5, atol=1e-6)


def test_gradients_by_index() -> None:
    x = hm.tensor(X, requires_grad=True)
    values, _ = x.max(dim=1)
    values.sum().backward()
    assert x.grad is not None and x.grad.tolist() == [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]


def test_functions_keep_their_identity() -> None:
    """The door is in the function itself: pickles, signatures and the names of other modules stay."""
    from hybridml.arrays.shaping import manipulation

    assert hm.stack is manipulation.stack
    assert pickle.loads(pickle.dumps(hm.stack)) is hm.stack
    assert list(inspect.signature(hm.stack).parameters) == ["arrays", "axis"]
    assert "def stack" in inspect.getsource(hm.stack)
    assert accepted(hm.stack) == {"tensors": "arrays", "dim": "axis"}


@pytest.mark.parametrize("name", [n for n in dir(hm) if n[0] != "_" and inspect.isfunction(getattr(hm, n))])
def test_functions_take_the_other_names_of_their_parameters(name: str) -> None:
    """All but those that take any number of arguments."""
    fn = getattr(hm, name)
    parameters = inspect.signature(fn).parameters
    if any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in parameters.values()) or fn.__module__.startswith(
        ("hybridml.tracing", "hybridml.transforms", "hybridml.inspect", "hybridml.interop", "hybridml.control_flow")
    ):
        return
    row = name == fn.__name__ and fn.__module__ == "hybridml"
    known = accepted(fn)
    for parameter in parameters.keys() - known.keys():
        for other in OTHER_NAMES.get(parameter, ()) if parameter != "shape" or not row else ():
            assert other in known or other in parameters, f"{name}({parameter}=) does not take {other}="


def test_what_has_pytorchs_manner_is_what_takes_dim() -> None:
    assert all("dim" in accepted(getattr(hm, name)) or "alpha" in accepted(getattr(hm, name)) for name in pytorchs)


@pytest.mark.parametrize("module", ["hm", *OF_MODULE])
def test_advice_is_for_names_that_are_not_there(module: str) -> None:
    hints = OF_MODULE.get(module, HINTS)
    owner: Any = importlib.import_module(module) if module.startswith("hybridml") else evaluate(module, hm.tensor(X))
    for name, advice in hints.items():
        with pytest.raises(AttributeError, match=f"no attribute '{name}'; {re.escape(advice)}"):
            getattr(owner, name)


def test_hardware_is_copied_as_other_objects() -> None:
    mps = hm.backends.mps
    assert repr(copy.deepcopy(mps)) == repr(pickle.loads(pickle.dumps(mps))) == "<hm.backends.mps: not available>"


def test_print_options_have_both_libraries_names() -> None:
    try:
        hm.set_printoptions(precision=2, sci_mode=False)
        assert repr(hm.tensor([1.23456, 1e-6])) == "Tensor([1.23, 0.00])"
        hm.set_printoptions(profile="short", threshold=2)
        assert repr(hm.arange(9)) == "Tensor([0, 1, ..., 7, 8], shape=(9,))"
    finally:
        hm.set_printoptions(profile="default", suppress=False)


def test_a_number_is_text_in_both_styles() -> None:
    def text(x: hm.Tensor) -> str:
        return f"{x.sum()} {x.mean():.3f}"

    traced = hm.trace(text)
    for scale in (1.0, 2.0, 3.0):
        x = hm.tensor(X) * scale
        assert traced(x) == text(x) == f"{21.0 * scale} {3.5 * scale:.3f}"


def test_files_have_both_libraries_names(tmp_path: Path) -> None:
    path = tmp_path / "weights"
    for _ in range(2):  # the first call opens the door
        hm.save(obj={"w": hm.ones(2)}, f=path)
        assert hm.load(f=path, weights_only=True)["w"].tolist() == hm.load(path=path)["w"].tolist() == [1.0, 1.0]
    with pytest.raises(TypeError, match="path= and f="):
        hm.load(path=path, f=path)
    with pytest.raises(TypeError, match="missing a required argument: 'path'"):
        hm.load()


def test_gradients_take_all_of_pytorchs_arguments() -> None:
    x = hm.tensor(X, requires_grad=True)
    (found,) = hm.autograd.grad(
        outputs=x * x, inputs=x, grad_outputs=hm.ones_like(x), create_graph=True, retain_graph=True, only_inputs=True
    )
    np.testing.assert_array_equal(found.detach().numpy(), 2 * X)


def test_values_with_their_indices_are_no_operand() -> None:
    """A list beside a tensor is an array; what `max(dim=)` returns is not, as in PyTorch."""
    x = hm.tensor(X)
    with pytest.raises(TypeError):
        x - x.max(dim=1, keepdim=True)
    assert (x - hm.amax(x, dim=1, keepdim=True)).shape == (2, 3)


def test_random_numbers_keep_our_order_where_it_may_be_meant() -> None:
    assert hm.random.normal(5, 0, 1).shape == (5,)
    assert hm.random.uniform(2, 0, 5).shape == (2,)
    assert hm.random.normal(0, 1, 100).shape == (100,)


def test_the_median_by_dim_is_nan_where_an_element_is() -> None:
    values, indices = hm.tensor([1.0, float("nan"), 2.0]).median(dim=0)
    assert np.isnan(values.item()) and indices.item() == 1


def test_operands_that_are_no_tensors() -> None:
    assert hm.max(X, dim=1).values.tolist() == [3.0, 6.0]
    assert hm.sort([[2.0, 1.0]], dim=1).indices.tolist() == [[1, 0]]
    assert hm.zeros(np.int64(2), np.int64(3)).shape == (2, 3)
    assert hm.norm(hm.eye(3), p="nuc").item() == pytest.approx(3.0)


def test_a_size_that_is_called_may_be_a_symbol() -> None:
    traced = hm.trace(lambda x: x.view(x.size(0), -1), strict=True)
    for n in range(2, 12):
        assert traced(hm.ones((n, 3, 2))).shape == (n, 6)
    assert traced.cache_info().compiles == 2


def test_surplus_positional_arguments_are_no_other_names() -> None:
    x = hm.tensor(X)
    for call in (lambda: x.std(None, True), lambda: hm.stack([x, x], 0, 1), lambda: hm.median(x, 0, 1)):
        with pytest.raises(TypeError, match="positional"):
            call()


def test_a_size_is_its_number_for_a_trace() -> None:
    traced = hm.trace(lambda x, n: x * n)
    assert [traced(hm.ones(()), hm.ones(n).size).item() for n in range(2, 8)] == [2.0, 3.0, 4.0, 5.0, 6.0, 7.0]
    assert traced.cache_info().compiles == 2
    held = hm.ones(3).size
    reads = hm.trace(lambda x: x * held)
    assert reads(hm.ones(())).item() == 3.0
    held = hm.ones(4).size
    assert reads(hm.ones(())).item() == 4.0
