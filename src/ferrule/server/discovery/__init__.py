"""Fixed tools in front of what a server offers: search in a large catalogue; resources and prompts as tools."""
