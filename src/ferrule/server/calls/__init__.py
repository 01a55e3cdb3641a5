"""One call of a handler: its context, its execution, its result."""
