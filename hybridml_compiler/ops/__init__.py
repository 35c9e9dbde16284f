"""The operation table: one row per operation, with its shape rule, meaning, lowering, gradient and samples.

`op.py` describes a row, `table.py` has all of them by name; the other files hold the rows of one subject each.
"""
