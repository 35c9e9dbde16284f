"""An interpreter of PTX in NumPy, which checks bounds, alignment, barriers and races. It knows no loop nests."""
