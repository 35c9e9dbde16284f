"""Actors that are threads of this process, for tests and notebooks."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, InvalidStateError, wait
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from typing import Any

from .engines import ActorError, Host, Promise, has_died, is_late


class Life:
    """An actor's thread, from a start to its end, and the promises that it has to keep."""

    def __init__(self, name: str, host: Host) -> None:
        self.name, self.host = name, host
        self.calls: SimpleQueue[tuple[str, tuple[Any, ...], list[Future[Any]]] | None] = SimpleQueue()
        self.promised: set[Future[Any]] = set()
        self.ended = threading.Event()
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def call(self, method: str, args: tuple[Any, ...], returns: int) -> list[Future[Any]]:
        promises: list[Future[Any]] = [Future() for _ in range(returns)]
        for promise in promises:
            self.promised.add(promise)
            promise.add_done_callback(self.promised.discard)
        self.calls.put((method, args, promises))
        if self.ended.is_set():
            self.end()
        return promises

    def end(self) -> None:
        """Breaks the promises. A call that is running goes on, and nobody gets what it returns."""
        self.ended.set()
        self.calls.put(None)
        for promise in list(self.promised):
            _settle(promise, None, has_died(self.name))

    def _run(self) -> None:
        while (call := self.calls.get()) is not None:
            method, args, promises = call
            try:
                found = self.host.run(method, *[a.result() if isinstance(a, Future) else a for a in args])
                parts = [found] if len(promises) == 1 else found
                for promise, part in zip(promises, parts, strict=True):
                    _settle(promise, part)
            except BaseException as error:
                for promise in promises:
                    _settle(promise, None, error)
            del call, args, promises


def _settle(promise: Future[Any], value: Any, error: BaseException | None = None) -> None:
    with suppress(InvalidStateError):  # it was broken before
        promise.set_result(value) if error is None else promise.set_exception(error)


class ThreadActor:
    """An object in a thread."""

    def __init__(self, name: str, make: Callable[[], Any]) -> None:
        self.name, self._make = name, make
        self._begin()

    def _begin(self) -> None:
        self._life = Life(self.name, Host(self._make))
        weakref.finalize(self, self._life.end)

    def start(self) -> None:
        self.kill()
        self._begin()

    def call(self, method: str, *args: Any, returns: int = 1) -> list[Promise]:
        return self._life.call(method, args, returns)

    def kill(self) -> None:
        self._life.end()


class ThreadEngine:
    """The engine that has a thread for each actor."""

    def actor(self, name: str, make: Callable[..., Any], *args: Any) -> ThreadActor:
        return ThreadActor(name, partial(make, *args))

    def wait(self, promises: Sequence[Promise], timeout: float) -> list[Promise]:
        done = wait(promises, timeout, FIRST_COMPLETED).done
        return [promise for promise in promises if promise in done]

    def result(self, promise: Promise, who: str, timeout: float) -> Any:
        if not wait([promise], timeout).done:
            raise is_late(who, timeout)
        error = promise.exception()
        if isinstance(error, ActorError):  # of the actor, or of one whose result it takes
            raise ActorError(*error.args) from error
        return promise.result()
