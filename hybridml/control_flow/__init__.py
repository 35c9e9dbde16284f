"""Control flow that a graph can hold: `cond`, `switch`, `while_loop`, `scan`, with the signatures of JAX.

Eagerly they are Python: a loop is a loop, prints and debuggers work in its body, and gradients are those of the
operations that ran. In a traced function each is one operation of the graph, compiled to a native loop or branch with
the function as its body, which is captured once, whatever the number of steps.

A function may reach whatever the program around it may: tensors and modules of the enclosing scope, generators, tensors
that it updates in place. What it is given and gives are nested containers of tensors (arrays and numbers become
tensors; None is an empty container). A carry keeps its structure, shapes, dtypes and devices from step to step.
"""

from .branches import cond
from .loops import fori_loop, prange, while_loop
from .scans import map, scan
from .switches import switch

__all__ = ["cond", "fori_loop", "map", "prange", "scan", "switch", "while_loop"]
