"""Views of many processes: sums of their collectives, one timeline, and a report on who lets the others wait.

log.py         times of collectives: sums of all, and each one while a profile is on
statistics.py  `statistics`: the sums as a table
clocks.py      the clock of rank 0, as each process reads it on its own
gathering.py   bytes of all processes, in the first one, and from it to all
stragglers.py  who comes last, how often and how late
recording.py   the profile of a process, which ranks that are threads share
trace.py       collectives as tracks and arrows of a file for Perfetto
comparison.py  `compare`: losses of several numbers of processes, side by side
profile.py     `profile`: the block that puts all of this together
"""
