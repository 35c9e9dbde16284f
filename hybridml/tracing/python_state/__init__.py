"""Python state that a trace reads or changes: guards, captured numbers, mutations, side effects.

guards.py               the guards that a function needs: what its code can name
guard_types.py          Python values that a trace has relied on, and whether they still hold
reads.py                how guards read values and put them back: bytes, variables, the environment
classes.py              questions of guards about classes
libraries.py            code and classes that are taken to be what they were
names.py                names for what a function reaches: `model.layer.weight`
mutation_epoch.py       a counter that moves when a watched attribute is assigned
captured_scalars.py     numbers around a function as inputs of its program
captured_containers.py  numbers in dicts, lists and tuples as inputs
promoted_ints.py        ints, and numbers in attributes, that become inputs at their second value
updated_scalars.py      numbers that the function itself updates: counters, sums of losses
rebound.py              tensors that the function itself rebinds, which are arguments of every call
scalar_source.py        where a captured number comes from
mutations.py            variables that a function assigns, containers that it changes
recorded.py             containers that a function fills: stand-ins that note what is done to them
prints.py               `print`, which every call does with its own values
side_effects.py         what no guard sees: random numbers, iterators, clocks, output
numpy_random.py         NumPy's generators, before and after somebody imports them
builtin_patches.py      names of Python that ask what a trace cannot answer by itself
clocks.py               clocks that each call reads: durations of a step
"""
