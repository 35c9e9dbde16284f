"""The CUDA target: plans become CUDA C, which NVRTC compiles on any machine, and a simulator of PTX runs it.

    loop nest --schedule--> blocks and threads --emit--> CUDA C --nvrtc--> PTX, cubin --sim--> results
    product, convolution, attention --contraction--> CUDA C

There is no device but `cuda:sim` yet: on a GPU the same sources are compiled with the same options.
"""
