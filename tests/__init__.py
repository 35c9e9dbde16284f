"""Tests of both packages: a folder for each room, `support/` for what they share."""
