"""The HTTP server: sockets, strict parsing, bodies, answers in order; HTTP/2 in a folder of its own."""
