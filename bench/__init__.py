"""Ferrule measured beside its peers: one command, one machine, one run."""
