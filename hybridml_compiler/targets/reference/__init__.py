"""The reference target: plans run by the interpreter of the loop dialect, in memory that only it can touch.

It says what a plan means. Whatever gives other results, a target or a path through the front end, is at fault.
"""
