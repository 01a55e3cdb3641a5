"""Options, each declared once: as a field of a struct, with its type, bounds and default, and its help below it."""
