"""Operators, keys and updates of small tensors as native methods of the tensor class ([Note: Eager calls]).

methods.py      tables of a process, and the code linked to them as methods
tables.py       what these tables hold
text.py         the code of all methods, which is emitted once per machine
objects.py      tensors, numbers and lines of the user's program as native code sees them
lifetimes.py    the memory of tensors and of arrays of one number
numbers.py      numbers and elements as those of a dtype, and the dtypes that operands have in common
slots.py        `x + y`, `x < y`, `x[key]`, `len(x)`, `bool(x)`: what CPython calls for them
elementwise.py  operators, functions of NumPy and updates in place, by NumPy's inner loops
kernels.py      our kernels as inner loops
copies.py       copies as an inner loop
functions.py    functions of tensors that are called by name, ours and NumPy's, copies and conversions
reductions.py   sums and extremes of all elements, by NumPy's inner loops
products.py     products of vectors and matrices, by the inner loop of NumPy's
views.py        the places and the views that keys name
"""
