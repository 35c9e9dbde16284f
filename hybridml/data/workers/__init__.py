"""Worker processes of a loader: batches made in other processes, in memory that both see.

shared_memory.py   the memory, in blocks that are used again; batches written to it and read from it
process.py         what runs in a worker: seeds, signals, batches one after the other
pool.py            the workers as the loader sees them: start, jobs, deaths, the end
epoch.py           the batches of an epoch, in order, from the workers of a pool
"""

from .epoch import Epoch
from .pool import Pool, WorkerError
from .process import WorkerInfo, get_worker_info

__all__ = ["Epoch", "Pool", "WorkerError", "WorkerInfo", "get_worker_info"]
