"""Checking a server, ours or anybody's: rules of the protocol, tried over a real transport, and a report."""
