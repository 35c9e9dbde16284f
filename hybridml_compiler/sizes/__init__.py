"""Sizes that are known when a call comes, or in a step of a loop: symbols, decisions about them, their values."""
