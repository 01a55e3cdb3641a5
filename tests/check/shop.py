"""A server of ours, with one of each."""

from __future__ import annotations

from ferrule import Server


def shop() -> Server:
    app = Server("shop", version="1.0.0")

    @app.tool(annotations={"readOnlyHint": True})
    def price(count: int = 1) -> int:
        """The price."""
        return 3 * count

    @app.tool
    def order(item: str) -> str:
        return item

    @app.resource("shop://hours")
    def hours() -> str:
        return "9 to 5"

    @app.prompt
    def review(language: str = "python") -> str:
        return language

    return app
