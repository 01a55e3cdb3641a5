"""What real ASGI servers run for the tests: the server of `asgi_site.py` at two mounts of a FastAPI application."""

from __future__ import annotations

from asgi_site import app
from fastapi import FastAPI

api = FastAPI()


@api.get("/hello")
async def hello() -> str:
    """Answer as the application the server is mounted in."""
    return "hello"


api.mount("/below", app.asgi(path="/", websocket=True))
api.mount("/", app.asgi(websocket=True))
