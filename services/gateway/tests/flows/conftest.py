import sys
from pathlib import Path

# The fakes are a module beside the tests.
sys.path.insert(0, str(Path(__file__).parent))
