"""Clients of model providers, behind one protocol."""
