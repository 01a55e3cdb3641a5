"""A folder of Python files whose tools, resources and prompts a server offers, and offers anew when they change."""
