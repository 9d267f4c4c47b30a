"""Runs the official tau2 CLI against the gateway, with scripted models behind it."""
