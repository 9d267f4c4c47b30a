"""Verdicts, the store of runs, and summaries."""

__version__ = "0.1.0"
