"""A server for the soak: says who it is, and repeats; over stdio, or over HTTP at a port."""

from __future__ import annotations

import os
import sys

from ferrule import Server

app = Server("soak")


@app.tool
async def echo(text: str) -> str:
    """Repeat a text."""
    return text


@app.tool
async def pid() -> int:
    """Return the number of this process."""
    return os.getpid()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        app.run("http", port=int(sys.argv[1]))
    else:
        app.run()
