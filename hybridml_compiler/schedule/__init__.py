"""Scheduling, from a graph to its plan: fusion, kernels as loop nests, calls of library code, and memory."""
