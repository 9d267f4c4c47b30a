"""The simulated caller: a voice pipeline without tools."""
