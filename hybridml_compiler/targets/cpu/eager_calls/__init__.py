"""Operators, keys and updates of small tensors as native methods of the tensor class ([Note: Eager calls]).

methods.py      tables of a process, and the code linked to them as methods
tables.py       what these tables hold
text.py         the code of all methods, which is emitted once per machine
objects.py      tensors, numbers and lines of the user's program as native code sees them
elementwise.py  operators, functions of NumPy and updates in place, by NumPy's inner loops
functions.py    functions of tensors that are called by name, ours and NumPy's
products.py     products of vectors and matrices, by the inner loop of NumPy's
views.py        `x[key]`, `x[key] = value`, and one element as a Python number
"""
