"""Who calls: principals, and the contract of those who find them out."""
