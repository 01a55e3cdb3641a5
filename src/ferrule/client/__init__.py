"""Use tools: one client for every server."""
