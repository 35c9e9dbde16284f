"""Training with many processes: collectives with gradients, data parallel, and what belongs to it.

transport.py        the protocol of what moves arrays between processes, and the errors of calls that do not match
threads.py          threads as processes, for tests and notebooks
mpi.py              processes that MPI has started
launched.py         what launchers have told the process
order.py            one collective of a group after the other, some of them while the program goes on
groups.py           `init`, the groups of this process, `split`
meanings.py         what rows of hybridml_compiler/ops/collectives.py do in a group
functions.py        collectives on tensors, with gradients
buckets.py          tensors that travel together
reducer.py          averages of gradients, in buckets that are under way during the backward
data_parallel.py    `DataParallel`
placements.py       parameters of which each process holds a part, and whole state dicts of them
fully_shard.py      `fully_shard`: parameters that are whole while a module computes
zero.py             `ZeroRedundancyOptimizer`: the state of an optimizer, in parts
sync_batch_norm.py  batch normalisation by the statistics of all processes
pipelining/         `PipelineStage`, `pipeline`, `ScheduleGPipe`, `Schedule1F1B`: a model in stages, one in each process
placing/            `device_of`, `place`: parts of a traced function, each computed by one process
tensor_parallel/    `parallelize_module`: layers of which each process has a part, computed together
seeing/             what the collectives of all processes cost, on one timeline, and who lets the others wait
simulation/         what a step takes with more processes than there are
servers/            parameter servers, backup workers, federated averaging, by actors
checkpoints.py      step-numbered checkpoints
resharding.py       parts in checkpoints, for other numbers of processes
sampler.py          the part of a dataset that belongs to a process
"""

from hybridml_compiler.errors import CollectiveError

from . import meanings as _meanings  # noqa: F401  (rows of the compiler call it)
from . import servers
from .checkpoints import CheckpointManager
from .data_parallel import DataParallel
from .fully_shard import fully_shard, summon_full_params
from .functions import all_gather, all_reduce, all_to_all, barrier, broadcast, recv, reduce_scatter, send
from .groups import Group, get_rank, get_world_size, init, is_initialized
from .pipelining.cut import Pipe, pipeline
from .pipelining.schedules import Schedule1F1B, ScheduleGPipe
from .pipelining.stage import PipelineStage
from .placements import clip_grad_norm_, full_state_dict, load_full_state_dict
from .placing.device_of import device_of, place
from .sampler import DistributedSampler
from .seeing.comparison import compare
from .seeing.profile import profile
from .seeing.statistics import reset_statistics, statistics
from .simulation.calibration import calibrate
from .simulation.links import Link
from .simulation.parameter_server import simulate_parameter_server
from .simulation.pipeline import simulate_pipeline
from .simulation.simulate import simulate
from .sync_batch_norm import SyncBatchNorm
from .tensor_parallel import (
    ColwiseParallel,
    HeadwiseParallel,
    ParallelStyle,
    Replicate,
    RowwiseParallel,
    SequenceParallel,
    Shard,
    parallelize_module,
)
from .threads import run_threads
from .zero import ZeroRedundancyOptimizer

__all__ = [
    "CheckpointManager", "CollectiveError", "ColwiseParallel", "DataParallel", "DistributedSampler", "Group",
    "HeadwiseParallel", "Link", "ParallelStyle", "Pipe", "PipelineStage", "Replicate", "RowwiseParallel",
    "Schedule1F1B", "ScheduleGPipe", "SequenceParallel", "Shard", "SyncBatchNorm", "ZeroRedundancyOptimizer",
    "all_gather", "all_reduce", "all_to_all", "barrier", "broadcast", "calibrate", "clip_grad_norm_", "compare",
    "device_of", "full_state_dict", "fully_shard", "get_rank", "get_world_size", "init", "is_initialized",
    "load_full_state_dict", "parallelize_module", "pipeline", "place", "profile", "recv", "reduce_scatter",
    "reset_statistics", "run_threads", "send", "servers", "simulate", "simulate_parameter_server",
    "simulate_pipeline", "statistics", "summon_full_params",
]  # fmt: skip
