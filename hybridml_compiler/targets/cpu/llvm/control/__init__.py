"""Loops and branches: `kernel.py` around bodies that are functions, `elements.py` with their numbers in registers."""
