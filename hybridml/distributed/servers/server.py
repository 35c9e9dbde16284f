"""`ParameterServer`: a model's parameters, spread over actors that update them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

from hybridml_compiler.errors import ArgumentError

from ...core.context import no_grad
from ...nn.module import Module
from .compression import as_it_is
from .embedding import Lookup, tables_of
from .engines import Promise, engine_named, is_alive
from .gradients import collect
from .shards import OptimizerFactory, Shard
from .values import array_of, split, spread, write

TIMEOUT = 300.0  # seconds, as of collectives


class ParameterServer:
    """A model's parameters on shards, which take gradients and give values; as of Li et al. (OSDI 2014).

    model: its parameters that require a gradient are copied to the shards, each parameter as a whole to one, the
    largest first, each to the shard that has the least. optimizer: makes the optimizer of a list of parameters, once on
    each shard; its update of a parameter must look at this parameter alone. shards: actors; engine: ``"ray"`` for
    processes, of this machine or of the cluster that `ray.init` has joined, ``"threads"`` for threads of this process.
    timeout: seconds that a call waits for a shard.

    Each push makes a version of the parameters, the same number on all shards. `train` lets workers do the pulls and
    pushes. Raises ArgumentError for a model without parameters, more shards than there are parameters, or another
    engine; ImportError where Ray is missing.

    >>> import hybridml as hm
    >>> from hybridml.distributed import servers
    >>> model = hm.nn.Linear(2, 1)
    >>> with servers.ParameterServer(model, lambda params: hm.optim.SGD(params, lr=0.1), engine="threads") as server:
    ...     for _ in range(3):
    ...         model(hm.ones((4, 2))).sum().backward()
    ...         version = server.push()
    ...         model.zero_grad()
    ...         version = server.pull()
    >>> version
    3
    """

    def __init__(
        self, model: Module, optimizer: OptimizerFactory, *, shards: int = 1, engine: str = "ray",
        timeout: float = TIMEOUT,
    ) -> None:  # fmt: skip
        trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
        tables = tables_of(model)
        if not 1 <= shards <= max(len(trained), shards if tables else 1):
            raise ArgumentError(
                "ParameterServer: shards must be 1 or more, and without tables at most the number of parameters that "
                f"are trained, {len(trained)}; got {shards}"
            )
        self.model, self.timeout, self.version = model, timeout, 0
        self.engine = engine_named(engine)
        self.placement = spread({name: p.nbytes for name, p in trained.items()}, shards)
        values = split({name: array_of(p).copy() for name, p in trained.items()}, self.placement)
        made = {name: table.table for name, table in tables.items()}
        self.shards = [
            self.engine.actor(f"shard {k}", Shard, k, shards, part, made, optimizer) for k, part in enumerate(values)
        ]
        self._pulled: list[Promise] = []  # of this version
        self.lookup = Lookup(self.engine, self.shards, timeout)
        for name, table in tables.items():
            table.attach(name, self.lookup)

    def pull(self) -> int:
        """Copies the parameters of now into the model; returns their version. Raises ActorError."""
        with no_grad():
            for part in self._all(self.pulled()):
                write(dict(self.model.named_parameters()), part)
        return self.version

    def push(self) -> int:
        """Updates by the gradients that the model has; returns the version that this makes. Raises ActorError."""
        return self.apply([collect(self.model, self.placement, as_it_is)])

    def pulled(self) -> list[Promise]:
        """Promises of the shards' values of this version, the same for all who ask."""
        if not self._pulled:
            self._pulled = [shard.call("pull")[0] for shard in self.shards]
        return self._pulled

    def apply(self, gradients: Sequence[Sequence[Any]]) -> int:
        """Updates by the mean of workers' gradients, each of which is split by shards and may be promises."""
        self._pulled = []
        parts = zip(*gradients, strict=True)
        pushed = [shard.call("push", *part)[0] for shard, part in zip(self.shards, parts, strict=True)]
        self.version = max(self._all(pushed))
        return self.version

    def state_dict(self) -> dict[str, Any]:
        """The state of all shards, for `CheckpointManager`. Raises ActorError."""
        found = self._all([shard.call("state_dict")[0] for shard in self.shards])
        return {f"shard {k}": state for k, state in enumerate(found)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Gives all shards a state back. Raises ArgumentError for one of another number of shards, ActorError."""
        if len(state) != len(self.shards):
            raise ArgumentError(
                f"ParameterServer.load_state_dict: the state is of {len(state)} shards, this server has "
                f"{len(self.shards)}; make it with shards={len(state)}"
            )
        self._pulled = []
        self._all([shard.call("load_state_dict", state[f"shard {k}"])[0] for k, shard in enumerate(self.shards)])
        self.version = max(part["version"] for part in state.values())

    def restart(self) -> list[str]:
        """Starts the shards again that do not answer, as they were at first; returns their names."""
        dead = [shard for shard in self.shards if not is_alive(self.engine, shard, self.timeout)]
        for shard in dead:
            shard.start()
        return [shard.name for shard in dead]

    def close(self) -> None:
        """Ends the actors of all shards."""
        for shard in self.shards:
            shard.kill()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _all(self, promises: Sequence[Promise]) -> list[Any]:
        """The results of calls, one for each shard."""
        named = zip(promises, self.shards, strict=True)
        return [self.engine.result(promise, shard.name, self.timeout) for promise, shard in named]
