"""Verdicts, the store of runs, and summaries."""
