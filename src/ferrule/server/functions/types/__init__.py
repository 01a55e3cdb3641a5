"""How values of any Python type are read from JSON, written as JSON and described."""
