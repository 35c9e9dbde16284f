"""Proxies of Python numbers and NumPy arrays inside a trace: their values come with the call.

base.py     what all proxies have in common, and what all numbers have
scalar.py   a Python float that is an input, or that `item()` has given
complex.py  a complex number that steps of a loop decide
integer.py  a Python int that is an input
flag.py     a bool that steps of a loop decide
late.py     a number that Python computes when the call ends
array.py    a NumPy array among the arguments
"""
