"""Training by actors instead of equal processes: parameter servers, backup workers, federated averaging.

engines.py          the protocols of actors and of what runs them
threads_engine.py   actors that are threads of this process
ray_engine.py       actors that are processes of Ray
values.py           values of parameters by name, and how they are divided among shards
embedding.py        `ShardedEmbedding`: tables whose rows are on the shards
gradients.py        gradients on their way to the shards
compression.py      gradients in fewer bytes, with error feedback
shards.py           the part of the parameters that one actor holds and updates
server.py           `ParameterServer`: all shards
workers.py          workers, which compute gradients; those that die are replaced
training.py         `train`: synchronous, with backup workers, asynchronous
federated.py        `federated`: means of models that clients have trained
hogwild.py          `hogwild`: processes that update shared memory without locks
"""

from .compression import OneBit, TopK
from .embedding import ShardedEmbedding
from .engines import ActorError
from .federated import Round, federated
from .hogwild import hogwild
from .server import ParameterServer
from .training import Training, Update, train

__all__ = [
    "ActorError", "OneBit", "ParameterServer", "Round", "ShardedEmbedding", "TopK", "Training", "Update", "federated",
    "hogwild", "train",
]  # fmt: skip
