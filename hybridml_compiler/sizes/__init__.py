"""Sizes that are known when a call comes: symbols, decisions about them, and their values."""
