"""Placement over processes: parts of a traced function, each computed by one process of a group.

regions.py    where the blocks of a trace are, and what this process computes of a program
homes.py      the process in which a tensor has its present value
device_of.py  `device_of`, the block, and `place`, which leaves the choice to the compiler
"""
