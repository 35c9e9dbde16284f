"""Functions and modules of `torch_layers` against recorded values of PyTorch: values, gradients, traced as eager."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from tests.support.by_operation import by_operation
from tests.support.examples import every
from tests.support.torch_cases import CONSTANT, recorded
from tests.support.torch_cases import arrays as arrays_of
from tests.support.torch_checks import close_to_record, in_one_form, inputs_of, module_close_to_record
from tests.support.torch_layers import FUNCTIONS, MODULES, RECORDED

F = hm.functional


@pytest.fixture(scope="module")
def torch_record() -> Any:
    return recorded(RECORDED)


# Paddings with each alignment, of which every mode is tried with three, and the bilinear one with all.
COMBINED = {
    f"grid_sample mode={mode}, padding_mode={padding}, align_corners={padding != 'border'}"
    for mode in ("nearest", "bicubic")
    for padding in ("zeros", "border", "reflection")
}


def parameters(names: Iterable[str], one_each: tuple[str, ...] = ("1d", "3d")) -> list[Any]:
    """Names of cases. Slow are the further ones of a family's members of one and three dimensions, with options that
    the member of two dimensions is tried with, and combinations of options that are each tried with others. `one_each`:
    how names end of which one case is enough."""
    met: set[str] = set()
    found = []
    for name in names:
        head = name.split()[0]
        again = head in met and head.endswith(one_each)
        met.add(head)
        found.append(pytest.param(name, marks=pytest.mark.slow if again or name in COMBINED else ()))
    return found


@pytest.mark.parametrize("name", parameters(FUNCTIONS))
def test_value_and_gradients_are_pytorchs(name: str, torch_record: Any) -> None:
    in_one_form(name, FUNCTIONS, lambda: close_to_record(name, FUNCTIONS[name], F, torch_record[0]))


@pytest.mark.parametrize("name", parameters(MODULES, ("",)))  # their options are those of the functions
def test_keys_values_and_gradients_of_modules_are_pytorchs(name: str, torch_record: Any) -> None:
    module = in_one_form(name, MODULES, lambda: module_close_to_record(name, MODULES[name], *torch_record))
    assert repr(module).startswith(type(module).__name__)


# The first case of each function, and of a family that of the member of two dimensions.
FIRST = {name.split()[0]: name for name in reversed(FUNCTIONS) if not name.split()[0].endswith(("1d", "3d"))}


def value_and_gradients(name: str, tensors: dict[str, hm.Tensor]) -> list[Any]:
    case = FUNCTIONS[name]
    out = case.run(F, SimpleNamespace(**tensors))
    wanted = [t for t in tensors.values() if t.requires_grad]
    weights = hm.cos(hm.arange(out.size, dtype=out.dtype).reshape(out.shape)) if wanted else None
    return [out.detach(), *(hm.autograd.grad((out * weights).sum(), wanted) if wanted else ())]


@pytest.mark.parametrize("name", every(2, FIRST))
def test_traced_is_eager(name: str) -> None:
    t = vars(inputs_of(FIRST[name], FUNCTIONS[FIRST[name]].inputs))
    eager = by_operation(lambda: value_and_gradients(FIRST[name], t))
    traced = hm.trace(lambda: value_and_gradients(FIRST[name], t))()
    for got, expected in zip(traced, eager, strict=True):
        np.testing.assert_allclose(got.numpy(), expected.numpy(), rtol=1e-5, atol=1e-5, strict=True)


def projected(name: str, arrays: dict[str, np.ndarray], along: dict[str, np.ndarray]) -> tuple[float, Any]:
    """A number made of the first gradients, and its gradients by the inputs that it depends on."""
    tensors = {
        key: hm.tensor(x, requires_grad=x.dtype.kind == "f" and key not in CONSTANT) for key, x in arrays.items()
    }
    out = FUNCTIONS[name].run(F, SimpleNamespace(**tensors))
    wanted = {key: t for key, t in tensors.items() if t.requires_grad}
    weighed = (out * hm.cos(hm.arange(out.size, dtype=out.dtype).reshape(out.shape))).sum()
    first = hm.autograd.grad(weighed, list(wanted.values()), create_graph=True, allow_unused=True)
    parts = [(g * hm.asarray(along[key])).sum() for key, g in zip(wanted, first, strict=True) if g is not None]
    total = sum(parts, hm.zeros((), dtype=hm.float64))
    if not total.requires_grad:
        return total.item(), {}
    found = hm.autograd.grad(total, list(wanted.values()), allow_unused=True)
    return total.item(), {key: g.numpy() for key, g in zip(wanted, found, strict=True) if g is not None}


@pytest.mark.parametrize("name", every(2, FIRST))
def test_second_gradients_are_differences(name: str) -> None:
    """The first ones are compared with PyTorch's."""
    case, generator = FIRST[name], np.random.default_rng(0)
    found = arrays_of(case, FUNCTIONS[case].inputs)
    # Moved away from where activations have corners.
    x = {key: v + generator.uniform(1e-4, 1e-3, v.shape) if v.dtype.kind == "f" else v for key, v in found.items()}
    along = {key: generator.normal(size=v.shape) for key, v in x.items()}
    _, gradients = projected(case, x, along)
    step = {key: generator.normal(size=g.shape) * 1e-6 for key, g in gradients.items()}
    moved = ({key: v + sign * step.get(key, 0) for key, v in x.items()} for sign in (1, -1))
    up, down = (projected(case, values, along)[0] for values in moved)
    expected = sum(float((g * step[key]).sum()) for key, g in gradients.items())
    assert (up - down) / 2 == pytest.approx(expected, rel=1e-4, abs=1e-11)


def test_functions_have_pytorchs_module() -> None:
    import hybridml.nn.functional as named

    assert hm.nn.functional is named and named.__all__ == F.__all__
    assert all(getattr(named, name) is getattr(F, name) for name in F.__all__)
