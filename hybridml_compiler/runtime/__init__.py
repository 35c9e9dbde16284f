"""Shared by all targets: cache on disk, fingerprints of our code, calls of Python, work that Ctrl-C cannot split."""
