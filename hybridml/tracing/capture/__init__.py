"""Capture: operations of a function become nodes of a graph, its branches and loops subgraphs.

tracer.py         the tracing interpreter
traced_tensor.py  the tensors of a trace
selection.py      `x[mask]`, whose sums need no number of elements
returned.py       `return float(x.sum())`: a number made only to be returned
texts.py          texts of numbers that come with the call, as f-strings make them
text_flow.py      where such a text goes: whether it is only kept, printed or returned
memory.py         memory of NumPy arrays that a function makes: NumPy's numbers, or a tensor
program_arrays.py  stand-ins of these arrays and of their elements
waiting_arrays.py  those of what a mask selects, and of arrays among the arguments
numpy_rules.py    NumPy's functions of them
number_bounds.py  bounds of numbers that steps of loops compute: what may be divided by
created_arrays.py  NumPy's creation functions
python_math.py    functions of Python's `math`, of numbers that come with the call
memory_order.py   the order in which the axes of an array lie in memory
alias_layout.py   how the tensors of a trace lie in memory in eager code: whether a reshape is a view
line_observer.py  the variables of a function by their names, while it is traced
subgraphs.py      the bodies of control operations, captured as graphs of their own
cond.py           a choice between two branches
loops/            loops, and their gradients
numbers/          numbers of Python's that steps of loops decide
composite.py      elementwise functions of the library as one operation each
subgraph.py       the part of a graph that is left when some of its values are known
"""
