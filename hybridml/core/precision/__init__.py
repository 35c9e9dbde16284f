"""Computation with floats of 16 bits, and the dtypes that operands have in common.

composites.py  functions of the library compute in float32 and round once
autocast.py    the interpreter behind `autocast`
operands.py    the dtypes that operands of elementwise rows are brought to
"""
