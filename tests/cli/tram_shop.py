"""A server with one of each, and commands run against it in this process."""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple

from msgspec import Meta, Struct

from ferrule import Context, Declined, Image, Server, ToolError

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 30


class Done(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str


class Stop(Struct):
    """A stop of a tram."""

    name: str
    lines: list[int]


def new_app() -> Server:
    """Return a server with one of each."""
    app = Server("shop", version="2.0.0", instructions="Sells trams.", description="A shop of trams.")

    @app.tool
    async def add(a: int, b: int) -> int:
        """Add two numbers.

        More about that.
        """
        return a + b

    @app.tool
    async def stop(name: str, lines: list[int], when: Literal["now", "later"] = "now") -> Stop:
        """Build a stop."""
        return Stop(f"{name} ({when})", lines)

    @app.tool
    async def fail(why: str) -> str:
        """Fail."""
        raise ToolError(why)

    @app.tool
    async def slow(steps: int, ctx: Context) -> str:
        """Take some steps."""
        for step in range(steps):
            await ctx.report_progress(step + 1, steps, f"step {step + 1}")
        return "done"

    @app.tool
    async def order(ctx: Context) -> str:
        """Ask what to order."""
        try:
            return await ctx.ask("What will it be?", Annotated[str, Meta(title="Drink")])
        except Declined:
            raise ToolError("nothing was ordered") from None

    @app.tool
    async def picture():  # type: ignore[no-untyped-def]
        """Draw."""
        return ["a picture:", Image(data=PNG, format="png")]

    @app.tool
    async def evil() -> str:
        """Speak to the terminal.\x1b[2J"""
        return "first\n\x1b[2Jsecond\x9b2J\u202e"

    @app.resource("shop://hours")
    async def hours() -> str:
        """When the shop is open."""
        return "9 to 5\n"

    @app.resource("shop://logo", mime_type="image/png")
    async def logo() -> bytes:
        """The logo."""
        return PNG

    @app.resource("shop://{item}/price")
    async def price(item: str) -> str:
        """The price of something."""
        return f"{item}: 3"

    @app.prompt
    async def review(language: str, style: str = "short") -> str:
        """Ask for a review."""
        return f"a {style} review of {language}"

    return app
