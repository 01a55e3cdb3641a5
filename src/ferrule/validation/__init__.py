"""JSON Schemas and YAML front matter that others wrote: checked before use, then used within bounds."""
