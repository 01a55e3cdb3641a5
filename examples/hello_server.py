"""The smallest server: one tool, served over stdio."""

from __future__ import annotations

from ferrule import Server

app = Server("hello", version="1.0.0")


@app.tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


if __name__ == "__main__":
    app.run()
