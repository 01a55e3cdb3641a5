"""How the proxy is tested: against doubles of providers, over real sockets."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
