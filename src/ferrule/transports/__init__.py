"""Carriers: frames up, messages down."""
