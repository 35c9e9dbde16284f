"""Reductions: sums, statistics, quantiles, running sums, and those that leave NaN out.

reductions.py  reductions made of others: `logsumexp`, `aminmax`, `var_mean`
statistics.py  averages, covariances, histograms
quantiles.py   quantiles and medians
cumulative.py  running sums, products and extremes; differences of neighbours
missing.py     reductions that leave NaN out
"""
