"""Rolling: Python's loops become loops of the graph while they are captured, one step for all.

hooks.py        what a trace has in the places of `range`, `enumerate`, `zip` and `reversed`; its answers to questions
steps.py        `for` loops over ranges and arrays, by symbolic numbers of their steps
blocks.py       such loops, where a step in so many is unlike the others
data_ranges.py  `for` loops over ranges whose ends data decides
while_loops.py  `while` loops, from one question about data to the next
number_loops.py  `while` loops that Python's own numbers end: which, and how many steps they take
number_steps.py  their steps, from the body's first instruction to the condition
watching.py     calls at chosen instructions of running code
capture.py      what all do: a step, what it carries on, where it leaves the loop
emission.py     the loop of the program that it becomes
aliases.py      variables that may be in one memory, in a step and after the loop
taken.py        variables that a step updates in place and assigns, whose memory is the loop's own
histories.py    whether a loop is differentiated, and what its steps write to NumPy's arrays
questions.py    what a step asks: questions that leave the loop, branches
ways/           branches that join where an `if` ends
undecided.py    decisions by the number of a step that are other ones in other steps
carries.py      kinds of what goes from step to step
number_types.py  variables that are numbers before a loop and tensors after a step
lists/          lists that grow, by the same in each step or where data decides
elements.py     what loops go over, by number
code_loops.py   loops of a code object: what is assigned, read, carried on, and the questions that leave them
held.py         what mutable objects hold, before a step and after it
"""
