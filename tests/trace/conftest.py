"""Every tracing test runs compiled and interpreted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import hybridml as hm
from hybridml.tracing.run import native_call


@pytest.fixture(params=["llvm", "interpret"])
def trace(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    monkeypatch.setattr(native_call, "TIMED_CALLS", 1)  # the third call of a kind goes straight to the native entry
    return hm.trace(backend=request.param)


@pytest.fixture(params=["llvm", "interpret"])
def backend(request: pytest.FixtureRequest) -> str:
    return request.param
