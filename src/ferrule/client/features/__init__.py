"""What a client can ask for and answer, one module a feature."""
