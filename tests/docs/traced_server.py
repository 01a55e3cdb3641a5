"""A server that writes down which of its functions run: `begin`, a call, then `end` returns their names in order."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

from ferrule import Server

app = Server("traced")
ran: list[str] = []


def note(frame: FrameType, event: str, argument: Any) -> None:
    """Write down the function that is called, if it is one of Ferrule's."""
    if event == "call" and "/ferrule/" in frame.f_code.co_filename.replace("\\", "/"):
        ran.append(frame.f_code.co_qualname)


@app.tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@app.tool
async def begin() -> str:
    """Write down functions from now on."""
    ran.clear()
    sys.setprofile(note)
    return "begun"


@app.tool
async def end() -> list[str]:
    """Stop, and return what ran."""
    sys.setprofile(None)
    return list(ran)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        app.run("http", port=int(sys.argv[1]))
    else:
        app.run()
