"""Drive the conversation: the hot path is here."""
