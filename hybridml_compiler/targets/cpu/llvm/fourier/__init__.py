"""Discrete Fourier transforms in LLVM."""
