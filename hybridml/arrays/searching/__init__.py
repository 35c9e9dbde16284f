"""Order: sorting, searching, sets, unique elements."""
