"""The tau2-eval command."""
