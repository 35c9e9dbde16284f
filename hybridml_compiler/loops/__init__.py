"""The loop dialect: loop nests over scalar expressions, and polynomials of the transcendental functions."""
