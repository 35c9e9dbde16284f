"""Shapes: reshaping, joining, splitting, repeating, padding, windows, grids."""
