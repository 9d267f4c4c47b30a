"""The evidence for each adopted assertion, as facts and rules that a script can check."""
