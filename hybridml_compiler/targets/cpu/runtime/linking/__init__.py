"""Linking and loading: ELF files, images of linked code, and their loader."""
