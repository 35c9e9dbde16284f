"""Calls of rows on a device whose like has come before, and memory of devices for other libraries."""
