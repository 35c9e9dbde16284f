"""The CUDA target: loop nests become CUDA C, which NVRTC compiles on any machine, and a simulator of PTX runs it.

    kernel --schedule--> blocks and threads --emit--> CUDA C --nvrtc--> PTX, cubin --sim--> results

There is no device but `cuda:sim` yet: on a GPU the same sources are compiled with the same options.
"""
