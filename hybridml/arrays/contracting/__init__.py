"""Products of matrices, `einsum`, and the order in which several tensors are contracted.

products.py           sums of products of two tensors: `tensordot`, `outer`, `kron`, ...
einstein.py           Einstein summation of any number of operands
contraction_order.py  the order in which its operands are multiplied
"""
