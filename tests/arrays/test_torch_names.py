"""Functions of `torch_names` against recorded values of PyTorch: values, gradients, traced as eager; errors."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml import nn
from hybridml.testing import gradcheck
from tests.support.by_operation import by_operation
from tests.support.closeness import assert_close
from tests.support.examples import every
from tests.support.torch_cases import arrays, recorded
from tests.support.torch_checks import close_to_record, inputs_of, module_close_to_record
from tests.support.torch_names import COMPLEX, FUNCTIONS, MODULES, RECORDED


class Torch:
    """hybridml under the names of `torch`: what it has elsewhere is `nn.functional` alone."""

    nn = SimpleNamespace(functional=hm.functional)

    def __getattr__(self, name: str) -> Any:
        return getattr(hm, name)


torch = Torch()


@pytest.fixture(scope="module")
def torch_record() -> Any:
    return recorded(RECORDED)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_value_and_gradients_are_pytorchs(name: str, torch_record: Any) -> None:
    close_to_record(name, FUNCTIONS[name], torch, torch_record[0])


@pytest.mark.parametrize("name", COMPLEX)
def test_complex_values_are_pytorchs(name: str, torch_record: Any) -> None:
    t = SimpleNamespace(**{key: hm.asarray(array) for key, array in arrays(name, COMPLEX[name].inputs).items()})
    want = torch_record[0][f"C {name}|out"]
    assert_close(COMPLEX[name].run(torch, t), want, "value")
    names = list(vars(t))
    traced = hm.trace(lambda *xs: COMPLEX[name].run(torch, SimpleNamespace(**dict(zip(names, xs, strict=True)))))
    assert_close(traced(*vars(t).values()), want, "traced")


@pytest.mark.parametrize("name", sorted({"complex", "polar", "sigmoid", "logaddexp", "logcumsumexp", "conv1d", "sinc"}))
def test_complex_gradients(name: str) -> None:
    inputs = {key: hm.asarray(array.astype("c16")) for key, array in COMPLEX[name].inputs.items()}
    names = list(inputs)
    gradcheck(
        lambda *xs: COMPLEX[name].run(torch, SimpleNamespace(**dict(zip(names, xs, strict=True)))),
        *inputs.values(),
    )


@pytest.mark.parametrize("name", MODULES)
def test_modules_are_pytorchs(name: str, torch_record: Any) -> None:
    module_close_to_record(name, MODULES[name], *torch_record)


@pytest.mark.parametrize("name", every(2, FUNCTIONS))
def test_traced_is_eager(name: str) -> None:
    case = FUNCTIONS[name]
    t = vars(inputs_of(name, case.inputs))
    names = list(t)
    differentiable = any(x.requires_grad for x in t.values())

    def program(*tensors: hm.Tensor) -> list[Any]:
        out = case.run(torch, SimpleNamespace(**dict(zip(names, tensors, strict=True))))
        if not out.requires_grad:
            return [out]
        wanted = [x for x in tensors if x.requires_grad]
        return [out.detach(), *hm.autograd.grad((out * out).sum(), wanted, allow_unused=True)]

    eager = by_operation(lambda: program(*t.values()))
    for got, want in zip(hm.trace(program)(*t.values()), eager, strict=True):
        assert (got is None) == (want is None)
        if want is not None:
            np.testing.assert_allclose(np.asarray(got), np.asarray(want), rtol=2e-5, atol=2e-5, strict=True)
    assert differentiable or name.startswith(("histc", "lu_factor pivots"))


def test_rnn_has_second_derivatives() -> None:
    layer = nn.RNN(2, 3, dtype=hm.float64)
    x = hm.asarray(np.random.default_rng(0).normal(size=(4, 2, 2)))
    gradcheck(lambda x, w: hm.grad(lambda x: (layer_with(layer, w)(x)[0] ** 2).sum())(x), x, layer.weight_hh_l0)


def layer_with(layer: nn.RNN, weight: hm.Tensor) -> Any:
    from hybridml.functional.recurrent import rnn_sequence

    h = hm.zeros((2, 3), dtype=hm.float64)
    return lambda x: (rnn_sequence(hm.matmul(x, layer.weight_ih_l0.detach().mT), h, weight, "tanh"),)


def test_windows_are_scipys() -> None:
    from scipy.signal import windows  # a second, of one process only

    options: dict[str, dict[str, Any]] = {name: {} for name in ("bartlett", "cosine", "hann", "nuttall")}
    options |= {"exponential": {"center": None, "tau": 2.0}, "gaussian": {"std": 1.5}, "kaiser": {"beta": 5.0}}
    for (name, more), count in itertools.product(options.items(), (0, 1, 2, 7, 10)):
        got = getattr(hm.signal.windows, name)(count, dtype=hm.float64, **more)
        want = getattr(windows, name)(count, **more)
        atol = 1e-15 if name != "nuttall" else 1e-6
        np.testing.assert_allclose(got.numpy(), want, atol=atol, err_msg=f"{name} of {count}")


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: hm.complex(hm.ones(2), hm.ones(2, dtype=hm.float64)), hm.DTypeError, "complex: takes two tensors"),
        (lambda: hm.select_scatter(hm.ones((2, 3)), hm.ones(2), 0, 0), hm.ShapeError, "select_scatter: the part"),
        (lambda: hm.slice_scatter(hm.ones(4), hm.ones(3), end=2), hm.ShapeError, "slice_scatter: the part"),
        (lambda: hm.diagonal_scatter(hm.ones((2, 3)), hm.ones(3)), hm.ShapeError, "diagonal_scatter: the diagonal"),
        (lambda: hm.diag_embed(hm.ones(2), 0, 1, 1), hm.ShapeError, "diag_embed: the axes"),
        (lambda: hm.put(hm.ones(2), hm.tensor([0, 1]), hm.ones(1)), hm.ShapeError, "put: 2 positions"),
        (lambda: hm.put(hm.ones(2), hm.tensor([5]), hm.ones(1)), hm.OutOfBoundsError, "index 5"),
        (lambda: hm.index_reduce(hm.ones(2), 0, hm.tensor([0]), hm.ones(1), "sum"), hm.ArgumentError, "index_reduce"),
        (lambda: hm.unflatten(hm.ones(6), 0, (4, -1)), hm.ShapeError, "unflatten: axis 0"),
        (lambda: hm.cartesian_prod(hm.ones((2, 2))), hm.ShapeError, "cartesian_prod: takes vectors"),
        (lambda: hm.frac(hm.tensor([1])), hm.DTypeError, "frac: takes floats"),
        (lambda: hm.linalg.lu_factor(hm.ones((2, 2)), pivot=False), hm.ArgumentError, "pivot=False"),
        (lambda: hm.signal.windows.gaussian(3, std=0.0), hm.ArgumentError, "std > 0"),
        (lambda: nn.RNN(2, 3, nonlinearity="gelu"), hm.ArgumentError, "nonlinearity"),
        (lambda: hm.functional.fractional_max_pool2d(hm.ones((1, 4, 4)), 2), hm.ArgumentError, "output_ratio"),
        (lambda: hm.functional.fractional_max_pool2d(hm.ones((1, 4, 4)), 2, 4), hm.ShapeError, "do not fit"),
    ],
)
def test_what_is_refused(call: Any, error: type[Exception], text: str) -> None:
    for run in (call, hm.trace(call)):
        with pytest.raises(error, match=text.replace("(", r"\(")):
            run()


def test_bools_are_summed_by_or_and_multiplied_by_and() -> None:
    x, i, t = hm.tensor([False, True, True]), hm.tensor([0, 0, 1]), hm.tensor([True, False, False])
    assert hm.index_add(x, 0, i, t).tolist() == [True, True, True]
    assert hm.scatter_reduce(x, 0, i, t, "prod").tolist() == [False, False, True]
    assert hm.scatter_reduce(x, 0, i, t, "amin", include_self=False).tolist() == [False, False, True]
    assert hm.scatter(x, 0, i, t, reduce="add").tolist() == [True, True, True]
    assert hm.sign(x).tolist() == hm.conj(x).tolist() == x.tolist()
    assert hm.trace(lambda x: hm.sign(x))(x).dtype is hm.bool


@pytest.mark.parametrize("dtype", [hm.float16, hm.bfloat16], ids=str)
def test_the_next_narrow_float(dtype: Any) -> None:
    bits = np.arange(0x7C00 if dtype is hm.float16 else 0x7F80, dtype=np.uint16)  # all that are positive, in order
    numbers = np.concatenate([bits.view(dtype), [np.asarray(np.inf, dtype)]])
    x = hm.asarray(numbers)
    for run in (hm.nextafter, hm.trace(hm.nextafter)):
        up, down = (np.asarray(run(x, hm.full((), end, dtype=dtype)).astype(hm.float64)) for end in (np.inf, -np.inf))
        wide = numbers.astype(np.float64)
        np.testing.assert_array_equal(up, np.append(wide[1:], np.inf))
        np.testing.assert_array_equal(down, np.append(-wide[1], wide[:-1]))
    assert np.isnan(np.asarray(hm.nextafter(x[:1], hm.full((), np.nan, dtype=dtype)).astype(hm.float32)))


def test_complex_normal_numbers_have_variance_one() -> None:
    z = hm.randn((20000,), dtype=hm.complex64, generator=hm.Generator(0)).numpy()
    assert z.dtype == np.complex64 and abs(np.var(z.real) - 0.5) < 0.02 and abs(np.var(z.imag) - 0.5) < 0.02
    assert abs(np.mean(z.real * z.imag)) < 0.02


@pytest.mark.parametrize("dtype", [hm.int8, hm.uint8, hm.int16, hm.int64, hm.uint64], ids=str)
def test_round_of_integers_is_exact(dtype: Any) -> None:
    limits = hm.iinfo(dtype)
    x = [v for v in (-128, -51, -50, -49, 0, 49, 50, 51, 120, 150, 250, 12345678912) if limits.min <= v <= limits.max]
    given = hm.tensor(x, dtype=dtype)
    for digits in (1, 2, 3):
        found = hm.round(given, -digits)
        pairs = [(v, w) for v, w in zip(found.tolist(), (round(v, -digits) for v in x), strict=True) if w <= limits.max]
        assert found.dtype == dtype and all(v == w for v, w in pairs if w >= limits.min)
    assert hm.trace(lambda t: hm.round(t, -2))(given).tolist() == hm.round(given, -2).tolist()


def test_names_that_numpy_programs_use() -> None:
    assert hm.ndarray is hm.Tensor
    assert hm.isreal(hm.tensor([1.0, 2.0])).tolist() == [True, True]
    x = np.array([1.2345, -2.675, 1e10])
    for decimals in (-2, 0, 1, 3):
        assert hm.round(hm.asarray(x), decimals=decimals).tolist() == np.round(x, decimals).tolist()
    assert hm.fft.ihfftn(hm.fft.hfftn(hm.ones((3, 4)))).shape == (3, 4)
