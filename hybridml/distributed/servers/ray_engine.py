"""Actors that are processes of Ray, of this machine or of a cluster that `ray.init` has joined before."""

from __future__ import annotations

import io
import logging
import pickle
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from ...tracing.function import TracedFunction
from .engines import Host, Promise, has_died, is_late

try:
    import ray
    from ray.cloudpickle import CloudPickler
except ImportError as error:
    raise ImportError(
        "the engine 'ray' needs Ray: pip install 'hybridml[ray]'; engine='threads' needs nothing"
    ) from error


class RayActor:
    """An object in a process of Ray's."""

    def __init__(self, name: str, make: Callable[[], Any]) -> None:
        self.name, self._pickled = name, ray.put(_pickled(make))
        self._begin()

    def _begin(self) -> None:
        # One CPU to be placed and none to run: more actors than cores wait for each other, and not for a place.
        hosted = ray.remote(_RayHost).options(scheduling_strategy="SPREAD", max_restarts=0)
        self._process = hosted.remote(self._pickled)

    def start(self) -> None:
        self.kill()
        self._begin()

    def call(self, method: str, *args: Any, returns: int = 1) -> list[Promise]:
        found = self._process.run.options(num_returns=returns).remote(method, *args)
        return [found] if returns == 1 else found

    def kill(self) -> None:
        ray.kill(self._process)


class _RayHost(Host):
    def __init__(self, pickled: bytes) -> None:
        # Read at the first call: that an argument cannot be read there is an error of the call, too.
        super().__init__(lambda: pickle.loads(pickled)())


class _Pickler(CloudPickler):  # type: ignore[misc]
    """Takes traced functions of a script with it, as it does others: no other process can import them."""

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, TracedFunction) and value.__module__ == "__main__":
            return value.reduced_by_value()
        return super().reducer_override(value)


def _pickled(value: Any) -> bytes:
    file = io.BytesIO()
    _Pickler(file).dump(value)
    return file.getvalue()


class RayEngine:
    """Processes of Ray as actors; starts Ray on this machine where `ray.init` was not called."""

    def __init__(self) -> None:
        if not ray.is_initialized():
            ray.init(include_dashboard=False, log_to_driver=False, logging_level=logging.WARNING)

    def actor(self, name: str, make: Callable[..., Any], *args: Any) -> RayActor:
        return RayActor(name, partial(make, *args))

    def wait(self, promises: Sequence[Promise], timeout: float) -> list[Promise]:
        done, _ = ray.wait(list(promises), num_returns=1, timeout=timeout, fetch_local=False)
        return done

    def result(self, promise: Promise, who: str, timeout: float) -> Any:
        try:
            return ray.get(promise, timeout=timeout)
        except ray.exceptions.GetTimeoutError as error:
            raise is_late(who, timeout) from error
        except ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, ray.exceptions.RayError):  # of an actor whose result it takes
                raise has_died(who) from error
            raise error.cause from error
        except ray.exceptions.RayError as error:
            raise has_died(who) from error
