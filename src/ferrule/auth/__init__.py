"""Authorization: who may call a server, and how a client gets the right to."""
