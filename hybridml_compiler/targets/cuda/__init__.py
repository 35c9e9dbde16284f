"""The CUDA target: plans become CUDA C, which NVRTC compiles on any machine, and a GPU or a simulator of PTX runs.

    loop nest --schedule--> blocks and threads --emit--> CUDA C --nvrtc--> PTX, cubin --driver--> results
    product, convolution, attention --contraction--> CUDA C
    plan --run_plan, machine--> launches, copies, products --launching--> a list --executable--> recorded as graphs

A GPU and the simulated one differ by their drivers (driver.py): `cupy_driver.py` and `simulated_driver.py`. All else is
the same for both: memory (pool.py, device.py), launches, graphs. availability.py says what a machine lacks.
"""
