"""What a program is specialized on: signatures, entries, paths of values, symbolic sizes."""
