"""The HTTP endpoint as an ASGI application."""
