"""Loop nest -> LLVM IR. `scalars.py` emits instructions, `kernel.py` loops, `gemm.py` matrix products, `step.py` the entry."""
