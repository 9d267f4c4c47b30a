"""What holds for all tests."""

from hypothesis import settings

# A machine that is busy must not fail a property: no timed assertions in tests.
settings.register_profile("tau2eval", deadline=None)
settings.load_profile("tau2eval")
