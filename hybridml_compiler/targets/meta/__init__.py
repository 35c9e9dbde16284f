"""The device of tensors without values: shapes, dtypes, and nothing else.

target.py  the device, and programs that compute nothing
"""
