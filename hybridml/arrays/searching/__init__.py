"""Order: sorting, searching, sets, unique elements.

orders.py   sort, argsort, top_k, and searches in what is sorted
uniques.py  elements without repetitions, and `isin`
sets.py     vectors as sets
"""
