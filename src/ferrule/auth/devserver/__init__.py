"""A development authorization server, and doubles of real providers with their quirks. Never for production."""
