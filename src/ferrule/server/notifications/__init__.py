"""What a server announces: changes, and who subscribed to them."""
