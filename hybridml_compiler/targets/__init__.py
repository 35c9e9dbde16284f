"""Targets: the machines that programs are compiled for, a folder each behind one protocol (`base.py`)."""
