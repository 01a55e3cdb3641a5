"""The rules, an area of the protocol a module."""
