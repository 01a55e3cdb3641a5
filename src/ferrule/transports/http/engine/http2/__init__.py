"""HTTP/2 (RFC 9113) on the library h2: frames, their limits, the fields of a request, streams, the connection."""
