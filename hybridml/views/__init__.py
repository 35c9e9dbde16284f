"""What a program does, to look at: profiles, memory over time, graphs.

watch      functions with something done round each call, as long as somebody looks
record     what a profile writes down meanwhile: operations, calls of traced functions, launches
profile    the profile: tables, HTML, a trace for Perfetto
timeline   memory over time, by source line
kernels    names and floating-point operations of launches
layers     where the nodes of a graph are drawn
page       a traced function as an HTML page
"""
