"""Actors, which are objects in a process or thread of their own, and the engines that run them.

All that is asked of an engine is in the two protocols. One thread, the driver's, makes all calls of a training.
Promises among their arguments say which actor gets what another has computed: arrays do not go through the driver.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, Protocol

from hybridml_compiler.errors import ArgumentError

Promise = Any  # the result of a call, or a part of it, once it is there


class ActorError(RuntimeError):
    """A worker or a shard of a parameter server that has died, or that has not answered in time; the text names it.

    >>> import hybridml as hm
    >>> from hybridml.distributed import servers
    >>> server = servers.ParameterServer(hm.nn.Linear(2, 1), hm.optim.SGD, engine="threads")
    >>> server.close()
    >>> server.pull()
    Traceback (most recent call last):
        ...
    hybridml.distributed.servers.engines.ActorError: shard 0 has died
    """


class Actor(Protocol):
    """An object elsewhere, whose calls are made one after the other, in the order in which they were asked for."""

    name: str

    def call(self, method: str, *args: Any, returns: int = 1) -> list[Promise]:
        """Promises of the parts of what a method returns. Promises among `args` are waited for where the actor is."""
        ...

    def kill(self) -> None:
        """Ends the actor: its promises become ActorErrors."""
        ...

    def start(self) -> None:
        """Ends the actor, if it has not ended, and makes the object again, as it was at first."""
        ...


class Engine(Protocol):
    """A way to run actors: threads, or processes of Ray."""

    def actor(self, name: str, make: Callable[..., Any], *args: Any) -> Actor:
        """An actor of what ``make(*args)`` makes, which may share `args` with others and must not change them. An
        error of `make` is that of the first call."""
        ...

    def wait(self, promises: Sequence[Promise], timeout: float) -> list[Promise]:
        """The promises that are done, once there are some; none if time is up."""
        ...

    def result(self, promise: Promise, who: str, timeout: float) -> Any:
        """The result of a call. Raises its error, ActorError with the name `who` if time is up or it has died."""
        ...


class Host:
    """The other side of an actor: makes the object at the first call, so that an error of that is one of the call's."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self.make, self.made = make, None

    def run(self, method: str, *args: Any) -> Any:
        """The result of a method of the object; of no method, nothing: who is asked lives."""
        if not method:
            return None
        if self.made is None:
            self.made = self.make()
        return getattr(self.made, method)(*args)


def is_alive(engine: Engine, actor: Actor, timeout: float) -> bool:
    """Whether an actor answers."""
    try:
        engine.result(actor.call("")[0], actor.name, timeout)
    except ActorError:
        return False
    return True


def has_died(who: str) -> ActorError:
    return ActorError(f"{who} has died")


def is_late(who: str, timeout: float) -> ActorError:
    return ActorError(f"{who} has not answered within {timeout:g} s; give a larger timeout= if it needs longer")


ENGINES = {"ray": "RayEngine", "threads": "ThreadEngine"}


def engine_named(name: str) -> Engine:
    """The engine of a name. Raises ArgumentError for another, ImportError where Ray is missing."""
    if name not in ENGINES:
        raise ArgumentError(f"engine must be one of {', '.join(map(repr, ENGINES))}, got {name!r}")
    made: Engine = getattr(import_module(f"{__package__}.{name}_engine"), ENGINES[name])()
    return made
