"""Eager operations on large arrays: which kernel computes them, and from which size on one is worth compiling."""
