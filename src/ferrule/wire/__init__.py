"""Bytes to JSON-RPC messages and back."""
