"""Tensors, dispatch, the tape: what every operation goes through, eager or traced."""
