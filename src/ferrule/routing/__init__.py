"""Several servers used as one: calls find one that works."""
