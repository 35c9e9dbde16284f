"""Idioms of vectors: interleaving, transposing, packing narrow elements, storing past the caches."""
