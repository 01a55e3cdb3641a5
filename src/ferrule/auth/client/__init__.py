"""OAuth as a client: finding out who issues tokens for a server, getting one, keeping it fresh."""
