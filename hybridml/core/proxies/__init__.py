"""Stand-ins for Python numbers and NumPy arrays inside a trace: their values come with the call."""
