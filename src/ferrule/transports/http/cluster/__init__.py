"""Several nodes that serve as one over HTTP: who has which session, and requests on their way to it."""
