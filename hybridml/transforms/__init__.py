"""Functions of functions: gradients, Jacobian products, batches, checkpoints.

grad.py        `grad`, `value_and_grad`, `vjp`, `jvp`, `stop_gradient`
jacobian.py    `jacrev`, `jacfwd`, `hessian`, `hvp`, `linearize`
custom.py      `custom_jvp`, `custom_vjp`: functions whose derivative is given
vmap.py        `vmap`, `psum`, `pmean`, `axis_index`
checkpoint.py  `checkpoint`: a part of a program that is computed again for its gradient
"""
