"""Loops of a traced program, and their gradients.

loop.py            a loop, recorded as one step of the history
branches.py        steps that data decides about: the values of all branches
ways.py            two of them in one: what they compute alike once, of operands that are chosen
one_memory.py      tensors that may be in one memory, as data decides
taken.py           values in branches that may be computed in vain
counts.py          numbers of steps that data decides, for gradients
data_sizes.py      slices whose ends data decides, as loops of one step
whole.py           loops that are not parted where conditions on their numbers turn
step_arrays.py     parts of NumPy arrays whose place a step decides
sized_arrays.py    NumPy arrays whose sizes come with the call
step_tensors.py    those of floats, which are tensors with the types of NumPy
segments.py        loops whose gradients would keep too much, in segments that are computed again
saved_values.py    values that a gradient has from memory, and arrays that it restores
cotangent_sums.py  cotangents of arrays, to which a step adds slices in place
"""
