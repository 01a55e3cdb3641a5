"""Lets the tests of this folder share the raw HTTP client and the processes it talks to."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
