"""`hybridml.explain_speed`: where the time of a step goes, what each factor is worth, and what to do about it.

machine.py   what this machine reaches, and unit costs of calls and page faults, measured once
launches.py  kinds of launches, and of operations that NumPy computes
parts.py     the parts of a call, from launches on the clock and from counters
factors.py   the table of factors: what is switched off, or changed
measure.py   styles, factors and peers in turns
rules.py     the sentences: one for each factor, and advice
report.py    the report: tables and the waterfall
explain.py   `explain_speed`
"""
