"""Specialization of programs: signatures, entries, paths of values, symbolic sizes.

signature.py         what of a call must be equal for a program to fit
entry.py             one signature: what it relies on, and the tree of its paths
call_leaves.py       what a call brings, with what is in places that the function rebinds
path_tree.py         the tree: values that Python asks for, and the segments of program between them
parts.py             rows of arrays, which segments are given as arrays
eager_calls.py       calls that run eagerly, known by a look at their arguments
symbolic_shapes.py   dimensions that calls have seen with a second size
often.py             calls of one size that a program for any size has taken
retrace_reasons.py   why a call is traced again, in one line
held_gradient.py     the `.grad` from before a call
results.py           what each call can give
errors.py            what a traced function tells its user, at the user's line
gc_pause.py          the garbage collector while something is compiled
"""
