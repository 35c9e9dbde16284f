"""Ways that a step of a loop may go, as data says, which join where an `if` ends.

joins.py        runs of a step, what a way has made, and one way of two
one_sided.py    an `if` without `else`, whose ways join in one run
join_points.py  where they join, by the instructions
early.py        questions of `while a or b` of which one answer begins the next step
choices.py      values of which data chooses one
"""
