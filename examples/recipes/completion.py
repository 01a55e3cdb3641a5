"""Suggestions while a user fills in a prompt or the variable of a template."""

from __future__ import annotations

import asyncio

from ferrule import Client, Server

app = Server("completions")


@app.resource("github://repos/{owner}/{repo}")
def repository(owner: str, repo: str) -> str:
    """A repository."""
    return f"{owner}/{repo}"


@app.prompt
def review(language: str, code: str) -> str:
    """Ask for a review."""
    return f"Review this {language}: {code}"


@app.completion("review.language")
def languages(value: str) -> list[str]:
    """Suggest languages."""
    return [name for name in ("python", "javascript", "typescript") if name.startswith(value)]


@app.completion("github://repos/{owner}/{repo}.repo")
def repositories(value: str, context: dict[str, str]) -> list[str]:
    """Suggest repositories of the owner that was chosen before."""
    known = {"modelcontextprotocol": ["python-sdk", "typescript-sdk", "specification"]}
    return [name for name in known.get(context.get("owner", ""), []) if name.startswith(value)]


async def main() -> None:
    """Ask for suggestions."""
    async with Client(app) as client:
        print((await client.complete("review", {"name": "language", "value": "py"})).values)
        found = await client.complete(
            "github://repos/{owner}/{repo}",
            {"name": "repo", "value": ""},
            context={"owner": "modelcontextprotocol"},
        )
        print(found.values)


if __name__ == "__main__":
    asyncio.run(main())

# It prints:
# ['python']
# ['python-sdk', 'typescript-sdk', 'specification']
