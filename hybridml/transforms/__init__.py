"""Functions of functions: gradients, Jacobian products, checkpoints."""
