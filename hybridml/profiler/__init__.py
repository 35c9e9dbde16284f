"""Profiles, memory over time, and a traced function as a page.

watch.py     functions with something done around each call, as long as somebody looks
record.py    what a profile writes down: operations, calls of traced functions, launches
events.py    that as nested events, and their sums by name and by source line
timeline.py  memory over time, by source line
chrome.py    both as a file for Perfetto
profile.py   the profile that a user holds: tables, HTML
kernels.py   names and floating-point operations of launches
drawing.py   the kernels of a program as SVG
lowered.py   `fn.lower`: a program for types alone, and what it costs in time and memory
page.py      a traced function as an HTML page
speed        why a step is as fast as it is
"""
