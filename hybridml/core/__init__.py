"""Tensors, dispatch and the tape: what every operation goes through, eager or traced.

tensor.py           Tensor: an array, or a node of a graph, with its place in the gradient history
ops.py              the rows of the operation table as public functions and Tensor methods
codegen.py          the Python text of the function of a row: the hot path
dispatch.py         the general path of an operation: promotion, NumPy arrays, tracing, errors
native_methods.py   operators and keys of small tensors as native methods, after some calls
spellings.py        other names of parameters: PyTorch's `dim` and NumPy's `axis`
library.py          the decorator of library functions, whose calls are native ones
eager.py            the interpreter at the bottom: NumPy, and kernels compiled for large arrays
device_tensor.py    tensors of a device that is not the CPU, and the interpreter that computes with them
interpreter.py      what dispatch asks of an interpreter, and the stack of those in force
nested.py           interpreters that stand on another: what those of `vmap` and `jvp` have in common
context.py          the interpreter and the grad mode that hold here
aliasing.py         views and in-place updates: one memory, several tensors, one history
pytree.py           nested containers of leaves, taken apart and put together
source_location.py  lines of the user's program
tracebacks.py       tracebacks that show the user's frames
leaks.py            who holds a traced value that outlived its trace
atomic.py           files that are replaced whole
states.py           checks of a `state_dict` before it is loaded
shared/             state that threads share, or each has of its own; memory that processes share
autodiff/           the tape and the engine that walks it backward, and the reverse steps of rows
devices/            calls of rows on a device whose like has come before; DLPack: memory shared with other libraries
batching/           the interpreter behind `vmap`, and its rules
forward/            the interpreter behind `jvp`, and its rules
precision/          float16 and bfloat16: composites that compute in float32, `autocast`; dtypes of operands
proxies/            stand-ins for Python numbers and NumPy arrays inside a trace
"""
