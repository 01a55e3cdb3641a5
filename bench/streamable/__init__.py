"""The scenarios over Streamable HTTP: their load generator, and what it finds out."""
