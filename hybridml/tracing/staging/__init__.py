"""Staging: functions inside of `jvp` and `vmap`, captured as graphs, which are then run on dual numbers or batches.

transforms.py  a call of a transform in a trace: its function is captured by the tracer alone, loops by one step for all
histories.py   histories that end in such a function (`detach`, `no_grad`), which a graph does not tell
graphs.py      graphs run by an interpreter that stands on the tracer
kinds.py       parts of tensors of such an interpreter
loops.py       loops in them: one loop of what is beneath
"""
