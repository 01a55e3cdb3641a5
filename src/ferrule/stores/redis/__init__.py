"""Stores in Redis or Valkey: what many nodes share."""
