"""What tests share; nothing here is a test.

accuracy.py            errors of float rows in ulp, measured against mpmath
array_api_standard.py  names and signatures of the array API standard
by_operation.py        library functions operation by operation
as_eager.py            everything that a user sees of a program, in both styles
cases.py               the label of a case on its error
closeness.py           comparison of sums by the terms that were added
convolution_cases.py   convolutions with operands in memory, and runs of what is emitted for them
device_cases.py        functions and layers with recorded values, for tests of where they create
cuda.py                generated CUDA kernels: what tests compile, run and break
cuda_calls.py          products and convolutions of generated CUDA kernels, and their exact results
counting.py            a kernel whose loops are as long as they are told
cpus.py                CPUs with narrower vectors or of another architecture, and code for them
examples.py            how many examples hypothesis draws
fake_cudnn.py          cuDNN by the names of its backend API, over memory of the host
fake_cupy.py           the names of CuPy that its driver uses, over memory of the host
fake_cupy_rows.py      CuPy's functions for rows without a kernel, by NumPy and SciPy
gpus.py                devices of both drivers of the CUDA target, for the same tests
loaders.py             a data set and what a process has, for loaders with worker processes
loop_gradients.py      programs with Python loops, and their gradients
loops.py               arrays for programs of loops, and what is the same of their results
markup.py              a check that markup is well formed
native_methods.py      tensors of several dtypes and shapes, and what is the same of results of native methods
numpy_calls.py         calls of NumPy's functions on arrays, on tensors, traced; their derivatives
numpy_page.py          the tables of docs/numpy.md
numpy_samples.py       a call of every function of NumPy that takes tensors
on_devices.py          rows of the operation table on a device
overridable.py         the functions of NumPy that other types may implement
pipelines.py           a model of four blocks, its batch, and the stages that it is cut into
placed.py              models whose parts ranks compute, their training, and the messages of a program
product_cases.py       matrix products with operands in memory, and runs of what is emitted for them
random_branches.py     programs of loops whose steps branch as data says, with flags and ways out
random_loops.py        programs of loops that read and write slices of arrays
random_steps.py        programs of loops over NumPy's arrays of several dtypes
random_numbers.py      random programs whose variables are numbers, and become tensors
random_graphs.py       random graphs, data for them, equality of bits
random_plans.py        random graphs with donations, and runs of their compiled programs
rows.py                samples of the operation table that one kernel computes
run_plan.py            a plan run without code generation
shown_errors.py        programs that fail, and what is wrong with how their errors are shown
streams.py             a stream that counts its samples, stages of any chain, small shards
threads.py             functions in both styles, threads beside the test, waits that end
torch_optimizers.py    optimizers, schedules and L-BFGS that PyTorch's runs are recorded of
torch_cases.py         cases that PyTorch's values and gradients are recorded of
torch_checks.py        those cases on hybridml, beside the recorded values
torch_layers.py        cases of layers, pooling, norms, activations and losses
torch_names.py         cases of functions with PyTorch's names at the top level
two_buckets.py         a data-parallel training whose gradients travel in two buckets
typed_program.py       a user's program with types, which mypy checks
typical_graphs.py      small graphs of typical programs
workers.py             models and losses for workers that train together, and what one process makes of them
"""
