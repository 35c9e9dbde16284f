"""`ShardedEmbedding`: a table of vectors whose rows are on the shards of a parameter server."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from hybridml_compiler.errors import ArgumentError, DTypeError, OutOfBoundsError, TraceError

from ...arrays.creation import asarray
from ...core.tensor import Tensor
from ...functional import embedding
from ...nn.module import Module
from ...tracing.capture.tracer import is_tracing
from .engines import Actor, Engine
from .values import array_of

CHUNK = 4096  # rows that are drawn together


class Table(NamedTuple):
    """A table's sizes and seed, of which each shard makes its rows."""

    rows: int
    dim: int
    seed: int

    def part(self, shard: int, shards: int) -> np.ndarray:
        """The rows of a shard, which are ``shard, shard + shards, ...``, before training: the same numbers for any
        number of shards, and no more than a chunk of the others in memory."""
        found = [np.empty((0, self.dim), np.float32)]
        for start in range(0, self.rows, CHUNK):
            count = min(CHUNK, self.rows - start)
            drawn = np.random.default_rng((self.seed, start)).standard_normal((count, self.dim), np.float32)
            found.append(drawn[(shard - start) % shards :: shards])
        return np.concatenate(found)


class Lookup(NamedTuple):
    """The way to rows of tables: the shards of a server."""

    engine: Engine
    shards: Sequence[Actor]
    timeout: float

    def __call__(self, name: str, rows: np.ndarray, dim: int) -> np.ndarray:
        """Rows of a table, each from the shard that has it. Raises ActorError."""
        found, count = np.empty((len(rows), dim), np.float32), len(self.shards)
        asked = []
        for k, shard in enumerate(self.shards):
            if (mine := rows % count == k).any():
                asked.append((mine, shard.name, shard.call("rows", name, rows[mine] // count)[0]))
        for mine, who, promise in asked:
            found[mine] = self.engine.result(promise, who, self.timeout)
        return found


class ShardedEmbedding(Module):
    """A table of `num_embeddings` vectors on the shards of a parameter server: integers (...) -> (..., embedding_dim).

    `ParameterServer` puts the tables that it finds in a model on its shards: row k on shard ``k % shards``. A step gets
    the rows that it looks up, each once, and sends gradients of these alone, summed over all look-ups; no process has
    the whole table. The server's optimizer must take sparse gradients, as `SGD` without momentum, `Adagrad` and
    `SparseAdam` do: a row that is not looked up stays as it is.

    The float32 values start standard normal by `seed`, the same for any number of shards. In a traced step look up
    before it and give it the vectors. Raises ArgumentError where the table is on no server, DTypeError for an input
    that is not of integers, OutOfBoundsError for one outside of the table, TraceError in a traced function.

    >>> import hybridml as hm
    >>> from hybridml.distributed import servers
    >>> table = servers.ShardedEmbedding(1000, 4)
    >>> with servers.ParameterServer(table, hm.optim.SGD, shards=2, engine="threads") as server:
    ...     table(hm.asarray([[1, 2], [2, 999]])).shape
    (2, 2, 4)
    """

    def __init__(self, num_embeddings: int, embedding_dim: int, *, seed: int = 0) -> None:
        super().__init__()
        self.table = Table(num_embeddings, embedding_dim, seed)
        self._place: tuple[str, Lookup] | None = None  # its name, and the server
        self._looked_up: list[tuple[np.ndarray, Tensor]] = []  # since the last gradients
        self.bytes_pulled = 0

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_place": None, "_looked_up": []}  # a copy is told its own

    def attach(self, name: str, lookup: Lookup) -> None:
        """Tells the table where its rows are; what was looked up elsewhere is forgotten."""
        object.__setattr__(self, "_place", (name, lookup))
        self._looked_up.clear()

    def forward(self, input: Tensor) -> Tensor:
        if is_tracing():
            raise TraceError("ShardedEmbedding: look up before the traced function, and give it the vectors")
        if self._place is None:
            raise ArgumentError("ShardedEmbedding: the table is on no server; give its model to ParameterServer")
        numbers = array_of(input)
        if numbers.dtype.kind not in "iu":
            raise DTypeError(f"ShardedEmbedding: the input must be of integers, got {numbers.dtype}")
        rows, places = np.unique(numbers, return_inverse=True)
        if len(rows) and not 0 <= rows[0] <= rows[-1] < self.table.rows:
            raise OutOfBoundsError(
                f"ShardedEmbedding: rows {rows[0]} to {rows[-1]} were asked for, of {self.table.rows}"
            )
        name, lookup = self._place
        values = asarray(lookup(name, rows, self.table.dim)).requires_grad_(True)
        # Not as attributes of modules are set: traced functions need not look at their modules again.
        object.__setattr__(self, "bytes_pulled", self.bytes_pulled + values.nbytes)
        self._looked_up.append((rows, values))
        return embedding(asarray(places.reshape(numbers.shape)), values)

    def take_gradients(self) -> tuple[np.ndarray, np.ndarray]:
        """Rows, and their gradients, since the last call; rows of more than one look-up more than once."""
        found = [(rows, array_of(values.grad)) for rows, values in self._looked_up if values.grad is not None]
        self._looked_up.clear()
        rows = np.concatenate([np.empty(0, np.int64), *(rows for rows, _ in found)])
        return rows, np.concatenate([np.empty((0, self.table.dim), np.float32), *(grad for _, grad in found)])

    def extra_repr(self) -> str:
        return f"{self.table.rows}, {self.table.dim}, seed={self.table.seed}"


def tables_of(model: Module) -> dict[str, ShardedEmbedding]:
    """The tables in a model, by their names."""
    return {name: module for name, module in model.named_modules() if isinstance(module, ShardedEmbedding)}
