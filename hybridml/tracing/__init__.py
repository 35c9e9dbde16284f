"""Tracing: the same program, captured as a graph, compiled, and called as one native function.

function.py   TracedFunction: signature -> entry, what a call does
entry.py      one signature: what it relies on, and the tree of paths that its calls have taken
branches.py   the tree: values that Python asks for, and the segments of program between them
outcome.py    what a path ends in: its program, what that writes back, what it returns
program.py    a captured graph as a differentiable function of arrays
capture.py    the tracing interpreter: operations become graph nodes, state becomes inputs and outputs
number.py     what stands for a Python float inside a trace; integers.py which ints are inputs
lifted.py     numbers around a function as inputs of its program
guards.py     what Python values a trace has relied on, and whether they still hold
effects.py    what a trace has changed in Python, and which of it every call can do
hidden.py     what it does that no guard sees: random numbers, iterators, clocks, output
signature.py  what of a call must be equal for a program to fit; names.py what its user calls the rest
reasons.py    why a call is traced again, in one line
fast.py       native calls for whole paths; finish.py what they leave to Python
dynamic.py    sizes that change become symbolic
region.py     bodies of control operations; choice.py, loops.py the operations
report.py     warnings at the user's line
state.py      a counter that moves when a module's attribute is assigned
"""

from .function import TracedFunction, trace

__all__ = ["TracedFunction", "trace"]
