"""Reductions: sums, statistics, quantiles, running sums, and those that leave NaN out."""
