"""Resource servers: who calls, by the token that comes with a request, and what it may do."""
