"""Shared by all targets: the cache on disk, fingerprints of the compiler, calls of Python, work that Ctrl-C cannot split."""
