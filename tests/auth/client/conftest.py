"""How the client half of OAuth is tested: real sockets, a real authorization server, a protected server of ours."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
