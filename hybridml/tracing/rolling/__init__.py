"""Rolling: Python's loops over a `range` become loops of the graph while they are captured, one step for all.

steps.py      the iterator that a loop is given, and what it finds out of a step
for_loops.py  loops of a code object: what is assigned, read, carried on
held.py       what mutable objects hold, before a step and after it
branches.py   steps that data decides about: the values of all branches, chosen
"""
