"""Functions of functions: gradients, Jacobian products, checkpoints.

grad.py        `grad`, `value_and_grad`, `vjp`, `jvp`
checkpoint.py  `checkpoint`: a part of a program that is computed again for its gradient
"""
