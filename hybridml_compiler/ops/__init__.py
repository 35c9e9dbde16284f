"""The operation table: one row an operation, with its shape rule, meaning, lowering, gradient and samples.

`op.py` says what a row is, `table.py` has all of them by name; the other files hold the rows of one subject each.
"""
