"""Tracing: the same program, captured as a graph, compiled, and called as one native function.

decorator.py      `trace`
function.py       `TracedFunction`: the callable that it makes
introspection.py  what a traced function shows of itself: the one door to the inspector and the profiler
compiled.py       eager composites of the library as one compiled call
capture/          operations of a function become nodes of a graph
python_state/     Python values that a trace reads or changes
specialize/       what a program is specialized on: signatures, paths, symbolic sizes
run/              the run of a compiled call
"""
