"""What lives, and what follows when it dies: lifetimes, never messages."""
