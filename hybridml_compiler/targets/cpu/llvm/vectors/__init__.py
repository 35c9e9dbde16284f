"""Idioms of vectors: interleaving, transposing, storing past the caches."""
