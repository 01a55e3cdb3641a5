"""The HTTP/1.1 server: sockets, strict parsing, answers in order."""
