"""Layers that take the size of their input from the first one.

uninitialized.py   tensors without a shape
layers.py          the layers
"""
