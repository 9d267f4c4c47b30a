"""Models that are scripts, behind an OpenAI-compatible server."""
