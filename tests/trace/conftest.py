"""Every tracing test runs compiled and interpreted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import hybridml as hm


@pytest.fixture(params=["llvm", "interpret"])
def trace(request: pytest.FixtureRequest) -> Callable[..., Any]:
    return hm.trace(backend=request.param)
