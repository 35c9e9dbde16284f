"""Sizes that are known when a call comes: symbols, what is decided of them, and their values."""
