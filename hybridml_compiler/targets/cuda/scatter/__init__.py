"""Scatters as launches: which loop nests are scatters, and the kernels that make them."""
