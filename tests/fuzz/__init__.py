"""Fuzzing: each module is a kind of attack with `run(seconds, seed)`; `python -m tests.fuzz` runs them."""
