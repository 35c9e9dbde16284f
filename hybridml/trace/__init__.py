"""Tracing: the same program, captured as a graph, compiled, and called as one native function.

function.py   TracedFunction: signature -> entry, what a call does
capture.py    the tracing interpreter: operations become graph nodes, state becomes inputs and outputs
entry.py      one compiled signature: inputs, write-backs, results, history for gradients
guards.py     what Python values a trace has relied on, and whether they still hold
state.py      a counter that moves when a module's attribute is assigned
"""

from .function import TracedFunction, trace

__all__ = ["TracedFunction", "trace"]
