"""CUDA C from the loop dialect: text without headers, made to be read."""
