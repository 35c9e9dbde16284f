"""Simulation of more processes than there are: what a step takes, by the costs of its parts.

links.py             what a collective costs by latency and bandwidth
tape.py              a step of one of n processes, run without the others: its work between collectives
replay.py            the time of a tape, with collectives that cost what they cost
simulate.py          `simulate`: a step with any number of processes
calibration.py       `calibrate`: latency and bandwidth of the processes of a group
pipeline.py          stages of a pipeline, by GPipe's order and by one forward, one backward
parameter_server.py  workers that read parameters of servers, and send them gradients
"""
