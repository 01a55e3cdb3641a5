"""Python functions as handlers: signatures, arguments, schemas, dependencies."""
