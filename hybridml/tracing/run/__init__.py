"""Running compiled calls: the program, its path, the native call, and the epilogue.

program.py        a captured graph as a differentiable function of arrays
gradient_effects.py  state that its gradient updates, and results that a gradient takes from the call
compiled_path.py  what a path ends in: its program, what that writes back, what it returns
array_results.py  arrays that a call returns, in the memory that it has made
backend.py        how graphs are run, and on which devices
inlined.py        a program inside of `vmap`: its operations one by one
placed.py         programs of a device other than the CPU
native_call.py    native calls that check the arguments, run a program and make its results
whole_call.py     those that are no more than native code
device_entry.py   the same for a program of a device
native_program.py  a program as one native call of tensors and floats
recorded_call.py  what such calls leave behind: numbers drawn, arguments updated, a node of the tape
native_guards.py  the guards that native code checks itself
epilogue.py       what is left to do in Python after a native call
grad_donation.py  gradients whose memory a call may write the new ones to
sparse_outputs.py  gradients that have some rows alone
random_draws.py   random numbers that a program draws: their blocks are reserved before it runs
"""
