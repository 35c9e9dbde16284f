"""Launches in few steps of the host: plans as lists of calls, calls by libcuda, checks that nobody waits for."""
