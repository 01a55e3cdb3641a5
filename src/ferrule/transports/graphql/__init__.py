"""GraphQL: what a server offers as queries, its tools as a mutation, its changes as subscriptions."""
