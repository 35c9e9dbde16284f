"""Numbers of Python's that steps of loops decide.

whole_numbers.py    ints that they make of floats
complex_numbers.py  complex numbers, and functions of `cmath` and NumPy of them
perhaps.py          tensors that are numbers in some calls, and flags that say so
results.py          what rows make of numbers, scalars of NumPy's and tensors
stored_ints.py      ints of data that are written to NumPy arrays
sliced.py           slices of NumPy arrays whose ends data decides, outside of loops
lengths.py          lengths of selections by masks, and elements of these
"""
