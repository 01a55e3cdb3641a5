"""Several servers side by side, used through one client: `Client({"a": target, …})` and an mcp.json with several."""
