"""The HTTP+SSE transport that came before Streamable HTTP, server side."""
