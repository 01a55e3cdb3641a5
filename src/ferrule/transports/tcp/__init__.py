"""TCP, TLS and Unix sockets: framed messages on a socket of one's own."""
