"""Compiled kernels for eager code, at the granularity of one operation: `elementary` functions and matrix `products`.

Compiled at first use, cached on disk; NumPy is the small-array path and the fallback where there is no compiler.
"""
