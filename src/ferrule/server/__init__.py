"""Offers tools, resources and prompts."""
