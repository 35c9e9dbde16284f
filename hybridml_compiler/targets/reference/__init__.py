"""The reference target: plans run by the interpreter of the loop dialect, in memory that only it can touch.

It says what a plan means. Whatever gives other results, a target or a path through the front end, is at fault.

target.py  the target: its abilities, programs and executables
plan.py    a plan's launches, run one after the other
memory.py  its memory
"""
