"""A fusion group as a loop nest."""
