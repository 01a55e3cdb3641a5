"""Who is there: servers, transports and links by kind, name and capability, and the way from one to the other."""
