"""Placement: which device computes each operation of a graph, and the graph as programs of one device each.

by_operands.py  where the operands are: the rule
units.py        operations that one launch computes together, and the work in each
performance.py  how fast devices are, and how long they take for some work
timeline.py     when each device would have done its units, and list scheduling
cut.py          the two-device placement of the least cost, as a minimum cut
by_cost.py      the device of least cost for each unit, of several ways to choose
partition.py    the graph cut into programs, which send values to each other
"""
