"""Forward mode: the interpreter behind `jvp`, and the rules by which tangents go through an operation.

interpreter.py    the interpreter, whose tensors are a value and its tangent
rules.py          tangents of the results of a row, by its kind
transposition.py  the derivative along tangents of what can be pulled back
"""
