"""Functions in both styles, threads beside the test's, and waits that end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

import pytest

import hybridml as hm

STYLES = pytest.mark.parametrize("traced", [False, True])
SECONDS = 20.0  # after which a thread that waits has been forgotten


def in_style(traced: bool, fn: Callable[..., Any]) -> Any:
    return hm.trace(fn) if traced else fn


@contextmanager
def beside(fn: Callable[[], Any]) -> Iterator[None]:
    """Runs a function in another thread while the block runs; raises its error."""
    promise: Future[Any] = Future()

    def run() -> None:
        try:
            promise.set_result(fn())
        except BaseException as error:
            promise.set_exception(error)

    threading.Thread(target=run, daemon=True).start()  # one that waits for ever does not hold the tests up
    yield
    promise.result(SECONDS)


def waits(until: Callable[[], bool]) -> None:
    end = time.monotonic() + SECONDS
    while not until():
        assert time.monotonic() < end
        time.sleep(0.001)
