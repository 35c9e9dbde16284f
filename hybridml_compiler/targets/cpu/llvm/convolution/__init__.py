"""Convolutions in LLVM IR: packed operands, tiles and Winograd's transforms."""
