"""Timings of named workloads in both styles, with PyTorch and JAX beside them: `python -m benchmarks.compare`."""
