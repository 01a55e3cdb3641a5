"""Calls that go on after they were answered, on whichever side."""
