"""Computation with floats of 16 bits.

composites.py  functions of the library compute in float32 and round once
autocast.py    the interpreter behind `autocast`
"""
