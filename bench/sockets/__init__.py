"""Load over TCP and WebSocket."""
