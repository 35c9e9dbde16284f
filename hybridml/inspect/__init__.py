"""Seeing what a program does, in both styles: comparison, explanation, audits, values inside, the line of a NaN."""
