"""The vocabulary of MCP: one struct per concept, a superset of all revisions."""
