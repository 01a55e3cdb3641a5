"""What can be observed of servers and clients while they run."""
