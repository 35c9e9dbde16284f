"""Products of matrices, `einsum`, and the order in which several tensors are contracted."""
