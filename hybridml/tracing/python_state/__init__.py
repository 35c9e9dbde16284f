"""Python state that a trace reads or changes: guards, captured numbers, mutations, side effects."""
