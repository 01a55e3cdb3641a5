"""The same as for all of authorization."""
