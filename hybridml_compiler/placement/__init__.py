"""Placement: which device computes each operation of a graph, and the graph as programs of one device each.

by_operands.py  where the operands are: the rule
units.py        operations that one launch computes together, and the work in each
performance.py  how fast devices are, and how long they take for some work
timeline.py     when each device would have done its units, and list scheduling
cut.py          the two-device placement of the least cost, as a minimum cut
by_cost.py      the device of least cost for each unit, of several ways to choose
ranks.py        the process of a group that computes each operation, where blocks and operands say
ranks_by_cost.py  the process with which it is estimated to take the least time
messages.py     the part of a graph that one process computes, with messages to the others
partition.py    the graph cut into programs, which send values to each other
"""
