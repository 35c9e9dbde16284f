"""A program seen in both styles: comparison, explanation, audits, values inside, the line of a NaN.

side_by_side.py  `compare`: one function in both styles from the same start
comparison.py    its result
snapshot.py      the state that a function can reach, so that it can run again from the same start
explanation.py   `explain`: what a call runs, what it relies on, what that costs
explained.py     its result
audits.py        `audit`: the first operation whose compiled code does something else
graph.py         `fn.graph`: nodes, edges, types, source lines of what was traced; for networkx
graph_svg.py     its drawing
fetch.py         any value inside a traced function, computed from others
settings.py      `config`: settings of the compiler, for a block or for the rest of the program
stances.py       how calls of traced functions are done inside a block
deadlines.py     `deadline`: a block whose work ends at a time
nans.py          `debug_nans`: the operation, line and element where a NaN is made
shapes.py        `eval_shape`: the types of a result, without computing it
summary.py       `summary`: the layers of a model, their shapes and parameters
diagnosis.py     `doctor`: what works on this machine, and why the rest does not
"""
