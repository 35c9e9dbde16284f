"""Reverse-mode differentiation.

function.py    custom functions
tape.py        the tape and the engine that walks it backward
history.py     the node of a result, in its general form
pullbacks.py   the reverse step of a row, generated when first needed
replay.py      random numbers of a checkpoint's first run, drawn again
lost_histories.py  conversions to arrays and numbers, and the errors where gradients would be lost
reductions.py  gradients that are something else when they are stored: averages over processes
references.py  reference counts: whether anybody else holds an object
sparse.py      the gradient of some rows of a table
"""
