"""Transports: frames up, messages down."""
