"""Prompts: a text, and a conversation."""

from __future__ import annotations

import asyncio

from ferrule import Client, Server

app = Server("prompts")


@app.prompt(title="Code review")
def review_code(code: str) -> str:
    """Ask for a review."""
    return f"Please review this code:\n\n{code}"


@app.prompt
def debug_error(error: str) -> list[dict[str, str]]:
    """Begin a conversation about an error."""
    return [
        {"role": "user", "content": "I'm seeing this error:"},
        {"role": "user", "content": error},
        {"role": "assistant", "content": "I'll help debug that. What have you tried so far?"},
    ]


async def main() -> None:
    """List them, and fill them in."""
    async with Client(app) as client:
        for prompt in await client.list_prompts():
            print(prompt.name, [argument.name for argument in prompt.arguments or ()])
        filled = await client.get_prompt("debug_error", {"error": "TypeError"})
        for message in filled.messages:
            print(f"{message.role}: {message.content.text}")


if __name__ == "__main__":
    asyncio.run(main())

# It prints:
# review_code ['code']
# debug_error ['error']
# user: I'm seeing this error:
# user: TypeError
# assistant: I'll help debug that. What have you tried so far?
