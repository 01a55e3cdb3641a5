"""Reaching a server over HTTP."""
