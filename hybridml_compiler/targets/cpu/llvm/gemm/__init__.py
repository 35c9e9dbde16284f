"""Matrix products in LLVM IR: packed panels, tiles of registers, matrix times vector, low precision."""
