"""Numbers of Python's that steps of loops decide.

whole_numbers.py    ints that they make of floats
complex_numbers.py  complex numbers, and functions of `cmath` and NumPy of them
"""
