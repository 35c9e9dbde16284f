"""Checks of a real GPU (`python -m benchmarks.gpu_check`): whether it is right, and how fast it is."""
