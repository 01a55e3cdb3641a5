"""WebSocket (RFC 6455): frames up, messages down, on a connection that begins as HTTP."""
