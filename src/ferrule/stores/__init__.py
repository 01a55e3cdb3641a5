"""What outlives a request: kept in memory, or where several processes find it."""
