"""A change of what a user's operation reads around it makes another operation, in both styles and on disk."""

from __future__ import annotations

import copy
import math
import pickle
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hybridml as hm
from hybridml.extend.code_digest import version_of

TABLE = [1.0, 2.0]
WEIGHT = 1.0
settings = types.ModuleType("settings_of_a_user")
settings.slope = 2.0  # type: ignore[attr-defined]


class Options:
    slope = 2.0

    @staticmethod
    def scaled(x: Any) -> Any:
        return x * Options.slope


class Chosen(Options):
    pass


def width() -> float:
    return WEIGHT * settings.slope  # type: ignore[no-any-return]


def from_a_list(x: Any) -> Any:
    return TABLE[0] * x + TABLE[1]


def from_a_module(x: Any) -> Any:
    return settings.slope * x


def from_a_class(x: Any) -> Any:
    return Chosen.slope * x


def from_a_method(x: Any) -> Any:
    return Options.scaled(x)


def from_a_call(x: Any) -> Any:
    return width() * x


def changes() -> dict[Callable[..., Any], tuple[Any, Any]]:
    return {
        from_a_list: (TABLE, 0),
        from_a_module: (vars(settings), "slope"),
        from_a_class: (Options, "slope"),
        from_a_method: (Options, "slope"),
        from_a_call: (vars(settings), "slope"),
    }


@pytest.mark.parametrize("fn", changes())
def test_a_change_of_what_it_reads(fn: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    made, x = hm.kernel(fn), hm.tensor([1.0, 3.0])
    traced = hm.trace(lambda x: made(x) * 1)
    where, key = changes()[fn]
    for value in (2.0, 5.0):
        if isinstance(where, type):
            monkeypatch.setattr(where, key, value)
        elif isinstance(where, dict):
            monkeypatch.setitem(where, key, value)
        else:
            where[key] = value
        expected = [fn(1.0), fn(3.0)]
        assert made(x).tolist() == expected
        assert traced(x).tolist() == expected
        assert hm.trace(lambda x: made(x) + 0)(x).tolist() == expected


def test_the_row_is_kept_while_nothing_changes() -> None:
    for fn in changes():
        made = hm.kernel(fn)
        made(hm.ones(2))
        assert made.op is made.op


def test_zero_has_a_sign() -> None:
    zero = 0.0
    made = hm.kernel(lambda x: math.copysign(x, zero))
    assert made(hm.ones(1)).tolist() == [1.0]
    zero = -0.0
    assert made(hm.ones(1)).tolist() == [-1.0]


def test_variables_of_a_derivative_are_guarded() -> None:
    slope = 1.0
    straight = hm.kernel(lambda x: round(x), derivative=lambda x: slope)
    doubled = hm.kernel(lambda x: straight(x) * 2)
    eager = hm.grad(lambda x: doubled(x).sum() + straight(x).sum())
    traced, x = hm.trace(eager), hm.tensor([0.3, 1.6])
    assert eager(x).tolist() == traced(x).tolist() == [3.0, 3.0]
    slope = 4.0
    assert eager(x).tolist() == traced(x).tolist() == [12.0, 12.0]


def made_by_exec(source: str) -> Any:
    space: dict[str, Any] = {}
    exec(source, space)
    return space["main"]


@pytest.mark.parametrize(
    "source",
    [
        "def helper(x, k={}): return x * k\ndef main(x): return helper(x)",
        "def inner(x): return x * {}\ndef helper(x): return inner(x)\ndef main(x): return helper(x)",
        "class Options:\n    slope = {}\ndef main(x): return x * Options.slope",
        "kept = {{1: [{}]}}\ndef main(x): return x * kept[1][0]",
    ],
)
def test_digests_tell_what_is_around_a_function(source: str) -> None:
    two, three = (made_by_exec(source.format(k)) for k in (2, 3))
    assert version_of(two) != version_of(three)
    assert version_of(two) == version_of(made_by_exec(source.format(2)))


SCRIPT = """
import hybridml as hm
from helpers import helper
made = hm.kernel(lambda x: helper(x) * 1)
print(hm.trace(lambda x: made(x) + 0)(hm.ones(1)).item())
"""


def test_a_helper_that_was_edited_is_another_program(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    env = {"HYBRIDML_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": ":".join(filter(None, sys.path))}
    env["PYTHONDONTWRITEBYTECODE"] = "1"
    for add in (1, 2):
        (tmp_path / "helpers.py").write_text(f"def helper(x):\n    return x + {add}\n")
        found = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, env=env, capture_output=True, text=True)
        assert found.stdout.split() == [f"{add + 1}.0"], found.stderr


@hm.kernel
def kept_by_name(x: Any) -> Any:
    return x + 1


def test_a_kernel_is_copied_and_pickled_as_a_function_is() -> None:
    assert pickle.loads(pickle.dumps(kept_by_name)) is kept_by_name
    layer = hm.nn.Linear(2, 2)
    layer.act = hm.kernel(lambda x: x * 2)
    assert copy.deepcopy(layer).act is layer.act


numba = pytest.importorskip("numba")
ARRAY = np.array([1.0, 2.0], np.float32)


def test_arrays_and_modules_that_numba_has_frozen() -> None:
    @hm.kernel(kind="array", infer=lambda x: x)
    def scaled(x: Any) -> Any:
        return x * ARRAY * np.float32(settings.slope)  # type: ignore[attr-defined]

    traced, x = hm.trace(lambda x: scaled(x) + 0), hm.ones(2)
    assert scaled(x).tolist() == traced(x).tolist() == [2.0, 4.0]
    ARRAY[0] = 3.0
    assert scaled(x).tolist() == traced(x).tolist() == [6.0, 4.0]
    ARRAY[0] = 1.0
