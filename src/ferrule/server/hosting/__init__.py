"""Serving: listeners, lifespans, links, and what every server answers by itself."""
