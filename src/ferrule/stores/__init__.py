"""What outlives a request: the contracts of stores, stores in memory and in one file."""
