"""The interop server over the HTTP+SSE pair; its log on stdout says where it serves."""

from __future__ import annotations

import logging
import sys

from ferrule_server import app

if __name__ == "__main__":
    logging.basicConfig(level="INFO", stream=sys.stdout)
    app.run("sse", port=0)
