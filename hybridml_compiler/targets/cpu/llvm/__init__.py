"""Loop nest -> LLVM IR: `scalars.py` instructions, `kernel.py` loops, `gemm.py` products, `step.py` the entry."""
