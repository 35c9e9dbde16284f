"""The native function that a user calls: it checks the arguments, runs the step and makes the results."""
