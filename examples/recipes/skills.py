"""A folder of skills, served by one side and loaded by the other."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from ferrule import Client, Server

SKILL = """---
name: greeting
description: How to greet a guest
---
Say the guest's name, then ask about the journey.
"""


async def main() -> None:
    """Write a skill, offer its folder, and load it."""
    with tempfile.TemporaryDirectory() as folder:
        skill = Path(folder) / "greeting"
        skill.mkdir()
        (skill / "SKILL.md").write_text(SKILL, encoding="utf-8")
        app = Server("hotel")
        app.skills(folder)
        async with Client(app) as client:
            for listed in await client.list_skills():
                print(f"{listed.name}: {listed.description}")
                print((await client.load_skill(listed)).instructions.strip())


if __name__ == "__main__":
    asyncio.run(main())

# It prints:
# greeting: How to greet a guest
# Say the guest's name, then ask about the journey.
