"""Operators, slices and updates of small tensors as native methods of the tensor class ([Note: Eager calls])."""
