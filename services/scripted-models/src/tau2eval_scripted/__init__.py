"""Scripted models behind an OpenAI-compatible server: the demo without a key, and the proof of the scorer."""
