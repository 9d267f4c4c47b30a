import sys
from pathlib import Path

# The fakes are a module beside the tests, which the bench and child processes use too.
sys.path.insert(0, str(Path(__file__).parent))
