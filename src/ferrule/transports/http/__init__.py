"""Streamable HTTP: one endpoint for clients of every protocol revision."""
