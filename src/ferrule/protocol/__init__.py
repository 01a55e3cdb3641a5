"""The rules of the conversation: no I/O, no clock, no tasks."""
