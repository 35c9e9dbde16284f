"""Sums of products as they are emitted, of matrices and of convolutions: vectors, loops, micro-kernels, packing."""
