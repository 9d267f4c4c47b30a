import sys
from pathlib import Path

import pytest

# The calls are a module beside the tests.
sys.path.insert(0, str(Path(__file__).parent))

import report_calls


@pytest.fixture
def make(builder):
    """Makes calls and scores them by the scorer's own code."""
    return report_calls.Calls(builder)
