"""Extensions of the protocol: the mechanism, Skills, MCP Apps, methods of one's own."""
