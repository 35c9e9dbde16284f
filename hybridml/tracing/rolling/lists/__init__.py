"""Lists in the steps of loops.

grown.py    lists that grow by the same in each step
uses.py     what code does with a list, by its instructions
of_data.py  lists that grow where data decides: buffers and a count
items.py    what such a list has for an item
"""
