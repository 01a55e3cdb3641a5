"""What outlives a request: the contracts of stores, and stores in memory."""
