"""Tracing: the same program, captured as a graph, compiled, and called as one native function.

decorator.py      `trace`
function.py       `TracedFunction`: the callable that it makes
lookup.py         the programs that it has for its calls, by their signatures
introspection.py  what a traced function shows of itself: the one door to the inspector and the profiler
reports.py        what it says of itself: warnings, and why it was traced again
library_function.py  library functions in eager code: their signatures, and a native call for each
library_duals.py  the functions of dual numbers that they are inside of `jvp`
library_call.py   a captured call of one as one native call
signals.py        signal handlers that run in the middle of a capture
bytecode.py       instructions of a code object
casting.py        traced functions that are called under `autocast`
compiled.py       what core has of the tracer, registered with it
capture/          operations of a function become nodes of a graph
python_state/     Python values that a trace reads or changes
rolling/          loops that are captured by one step for all
specialize/       what a program is specialized on: signatures, paths, symbolic sizes
run/              the run of a compiled call
"""
