"""Data parallel beside PyTorch's and all-reduce beside bare mpi4py's: `python -m benchmarks.distributed`."""
