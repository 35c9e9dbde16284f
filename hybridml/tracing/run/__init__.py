"""The run of a compiled call: program, path, the native call, and what is done behind it."""
