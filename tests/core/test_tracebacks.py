"""An error shows the frames of the user, and none of ours in between; in both styles."""

from __future__ import annotations

import sys
import traceback
import types
from collections.abc import Callable
from typing import Any

import pytest

import hybridml as hm
from hybridml import ShapeError, nn
from hybridml.core.codegen import as_operator
from tests.support.by_operation import by_operation


def product(x: hm.Tensor, w: hm.Tensor) -> hm.Tensor:
    return hm.exp(x) @ w


def outer(x: hm.Tensor, w: hm.Tensor) -> hm.Tensor:
    return product(x * 2, w)


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(3, 4), nn.ReLU())

    def forward(self, x: hm.Tensor) -> hm.Tensor:
        return self.body(x)


def functions(error: BaseException) -> list[str]:
    """Functions of the frames that a traceback shows, without this file's caller."""
    return [frame.name for frame in traceback.extract_tb(error.__traceback__)][1:]


@pytest.mark.parametrize("style", [lambda fn: fn, hm.trace], ids=["eager", "traced"])
def test_only_the_frames_of_the_user(style: Callable[..., Any]) -> None:
    with pytest.raises(ShapeError) as caught:
        style(outer)(hm.ones((2, 3)), hm.ones((2, 3)))
    assert functions(caught.value) == ["outer", "product"]


@pytest.mark.parametrize("style", [lambda model: model, hm.trace], ids=["eager", "traced"])
def test_of_a_module(style: Callable[..., Any]) -> None:
    with pytest.raises(ShapeError) as caught:
        style(Model())(hm.ones((2, 2)))
    assert functions(caught.value) == ["forward"]


def test_a_second_call_and_an_error_of_the_user() -> None:
    @hm.trace
    def check(x: hm.Tensor, fail: bool) -> hm.Tensor:
        if fail:
            raise RuntimeError("mine")
        return x + 1

    check(hm.ones((2,)), False)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="mine") as caught:
            check(hm.ones((2,)), True)
        assert functions(caught.value) == ["check"]


def test_the_first_call_of_an_operation() -> None:
    with pytest.raises(ShapeError) as caught:
        as_operator(hm.matmul)(hm.ones((2, 3)), hm.ones((2, 3)))
    assert functions(caught.value) == []


def test_a_kernel_that_finds_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ShapeError) as caught:
        hm.ones((3,)) + hm.ones((4,))
    assert functions(caught.value) == []
    monkeypatch.setenv("HYBRIDML_TRACEBACK", "full")
    with pytest.raises(ShapeError) as caught:
        hm.ones((3,)) + hm.ones((4,))
    assert functions(caught.value) != []


def test_a_defect_of_ours_keeps_its_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hybridml.functional.basics._Linear", None)
    with pytest.raises(AttributeError) as caught:
        by_operation(lambda: nn.Linear(3, 4)(hm.ones((2, 3))))
    assert "linear" in functions(caught.value)


def test_an_attribute_of_a_users_error_is_no_group(capsys: pytest.CaptureFixture[str]) -> None:
    class Several(Exception):
        exceptions = ("not", "errors")

    with pytest.raises(Several) as caught:
        raise Several("mine")
    sys.excepthook(Several, caught.value, caught.value.__traceback__)
    assert "Several: mine" in capsys.readouterr().err


def test_the_hook_shows_the_frames_that_it_is_given(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ShapeError) as caught:
        hm.ones((2, 3)).reshape(4, 5)
    whole = caught.value.__traceback__
    assert whole is not None
    sys.excepthook(ShapeError, caught.value, whole.tb_next)
    sys.excepthook(ValueError, None, None)  # type: ignore[arg-type]
    assert caught.value.__traceback__ is whole
    assert "ShapeError: reshape" in capsys.readouterr().err


def test_an_ipython_that_does_not_name_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    shell = types.SimpleNamespace(compile=types.SimpleNamespace())
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: shell))
    with pytest.raises(ShapeError, match=r"at test_tracebacks.py:\d+"):
        hm.ones((2, 3)) @ hm.ones((2, 3))
