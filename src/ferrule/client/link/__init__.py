"""A client's link to one server: opening it, asking on it, keeping it."""
