"""Code generators, a folder each."""
