"""What a server offers: tools, resources, prompts, completions, and how they are listed."""
