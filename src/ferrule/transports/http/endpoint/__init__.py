"""The MCP endpoint: which handler takes a request, sessions, streams, exchanges."""
