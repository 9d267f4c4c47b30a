"""Routes and records the audio of a call; one clock, turns, stop reasons."""
