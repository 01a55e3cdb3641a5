"""Lets the tests of this folder share the oracles, the messages and the wires."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
