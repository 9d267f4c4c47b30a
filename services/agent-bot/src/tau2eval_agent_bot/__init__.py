"""The agent under test: a voice pipeline with the airline tools."""
