"""Batching: the interpreter behind `vmap`, and the rules by which an operation runs for all elements of a batch."""
