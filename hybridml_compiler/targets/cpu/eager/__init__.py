"""Compiled kernels for eager code: one operation over arrays of any length, and matrix products.

Compiled at first use, cached on disk; NumPy is the small-array path and the fallback where there is no compiler.
"""
