"""What TCP, HTTP and WebSocket share: bind, accept, dial, admission, TLS."""
