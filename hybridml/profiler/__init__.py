"""Views of what a program does: profiles, memory over time, graphs.

watch      functions with something done round each call, as long as somebody looks
record     what a profile writes down meanwhile: operations, calls of traced functions, launches
events     that as events within each other, and their sums by name and by source line
timeline   memory over time, by source line
chrome     both as a file for Perfetto
profile    the profile that a user holds: tables, HTML
kernels    names and floating-point operations of launches
layers     where the nodes of a graph are drawn
drawing    the kernels of a program as SVG
page       a traced function as an HTML page
"""
