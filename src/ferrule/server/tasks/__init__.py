"""Calls that go on as tasks after they were answered."""
