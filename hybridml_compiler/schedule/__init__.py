"""Scheduling: fusion, kernels as loop nests, calls of library code, and memory."""
