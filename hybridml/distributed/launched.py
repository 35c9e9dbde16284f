"""Variables of the environment by which launchers tell a process what it is."""

from __future__ import annotations

import os

_MPI = ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "MPI_LOCALRANKID")  # variables of MPI's launchers


def by_mpi() -> bool:
    """Whether a launcher of MPI has started this process."""
    return any(name in os.environ for name in _MPI)


def world_size() -> int:
    """The number of processes that torchrun says there are; 1 where it says nothing."""
    return int(os.environ.get("WORLD_SIZE", "1"))
