"""Plain HTTP routes beside MCP."""
