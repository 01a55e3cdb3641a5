"""A server that is one of several nodes: what they share through stores."""
