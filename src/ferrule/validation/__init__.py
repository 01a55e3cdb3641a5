"""JSON Schemas that others wrote: judged before use, then used within bounds."""
