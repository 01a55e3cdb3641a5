"""The client the official conformance suite starts: `client.py URL`, with the scenario named in the environment.

A scenario says what to do; the library does it. Written with the public surface only.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import sys
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import urlsplit

from ferrule import (
    AuthorizationFailed,
    Client,
    ClientCredentials,
    EnterpriseManaged,
    OAuth,
    ToolError,
    WorkloadIdentity,
)
from ferrule.schema.tools import Tool

FIRST_STATELESS = "2026-07-28"

Deed = Callable[[Client], Awaitable[None]]


def client_for(url: str, version: str) -> Client:
    """Make a client that can answer everything, in the era of a revision."""
    return Client(
        url,
        mode="stateless" if version >= FIRST_STATELESS else "handshake",
        # Whatever is asked is answered with yes; the form's defaults are filled in for us.
        elicitation=accept,
        sampling=lambda request: "A model would say this.",
        roots=["file:///tmp"],
        # Some of the suite's servers have tools and do not declare them.
        strict=False,
        auth=auth_for(os.environ["MCP_CONFORMANCE_SCENARIO"], context()),
        name="ferrule-conformance",
        version="1.0.0",
    )


def context() -> dict[str, Any]:
    """Return what the suite tells of the scenario."""
    told: dict[str, Any] = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
    return told


Credentials = OAuth | ClientCredentials | EnterpriseManaged | WorkloadIdentity

METADATA_URL = "https://conformance-test.local/client-metadata.json"
"""The suite's authorization servers know this document without fetching it."""


def auth_for(scenario: str, told: dict[str, Any]) -> Credentials | None:
    """Return how to be let in, in a scenario about that."""
    if not scenario.startswith("auth/"):
        return None
    if "private_key_pem" in told:
        return ClientCredentials(
            client_id=told["client_id"], key=told["private_key_pem"], algorithm=told["signing_algorithm"]
        )
    if "idp_token_endpoint" in told:
        names = ("client_id", "client_secret", "idp_client_id", "idp_token_endpoint")
        return EnterpriseManaged(id_token=told["idp_id_token"], **{name: told[name] for name in names})
    if "valid_jwt" in told:
        return WorkloadIdentity(client_id=told["client_id"], token=told["valid_jwt"])
    if scenario == "auth/client-credentials-basic":
        return ClientCredentials(client_id=told["client_id"], client_secret=told["client_secret"])
    return OAuth(
        client_id=told.get("client_id"),
        client_secret=told.get("client_secret"),
        client_metadata_url=METADATA_URL,
        storage="memory",
        open_browser=follow,
    )


async def follow(url: str) -> str:
    """Be a person who agrees at once: return where the login page leads to."""
    return await asyncio.to_thread(_location, url)


def _location(url: str) -> str:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.netloc, timeout=10)
    connection.request("GET", f"{parts.path}?{parts.query}")
    return connection.getresponse().headers["Location"]


def accept(question: Any) -> dict[str, Any]:
    """Accept a form, with a yes where it wants one and says no default."""
    fields = (question.requested_schema or {}).get("properties", {})
    yes = {name: True for name, rules in fields.items() if rules.get("type") == "boolean" and "default" not in rules}
    return {"action": "accept", "content": yes}


def stub(tool: Tool) -> dict[str, Any]:
    """Make up arguments a tool should take."""
    stubs = {"string": "text", "integer": 1, "number": 1.5, "boolean": True, "object": {}, "array": [], "null": None}
    properties = tool.input_schema.get("properties", {})
    return {name: stubs.get(rules.get("type", "string"), "text") for name, rules in properties.items()}


async def use_first_tool(client: Client) -> None:
    """List the tools and call the first, if there is one."""
    tools = await client.list_tools()
    if tools:
        await client.call_tool(tools[0].name, stub(tools[0]))


async def list_tools(client: Client) -> None:
    """List the tools and no more."""
    await client.list_tools()


async def add_numbers(client: Client) -> None:
    """Add two numbers."""
    await client.list_tools()
    await client.call_tool("add_numbers", {"a": 5, "b": 3})


async def use_every_tool(client: Client) -> None:
    """Call every tool the library lets through."""
    for tool in await client.list_tools():
        await client.call_tool(tool.name, stub(tool))


async def use_everything(client: Client) -> None:
    """Use every tool, resource and prompt."""
    await use_every_tool(client)
    for resource in await client.list_resources():
        await client.read_resource(resource.uri)
    for prompt in await client.list_prompts():
        await client.get_prompt(prompt.name, {argument.name: "text" for argument in prompt.arguments or ()})


async def call_as_told(client: Client) -> None:
    """Make just the calls the scenario lists."""
    await client.list_tools()
    for call in context()["toolCalls"]:
        await client.call_tool(call["name"], call["arguments"])


async def go_through_rounds(client: Client) -> None:
    """Call tools that ask first, one that does not, and one that names no kind of result."""
    await client.list_tools()
    for name in ("test_mrtr_echo_state", "test_mrtr_unrelated", "test_mrtr_no_state", "test_mrtr_no_result_type"):
        await client.call_tool(name)


async def echo_schema(client: Client) -> None:
    """Give back a schema as it was received."""
    schemas = {tool.name: tool.input_schema for tool in await client.list_tools()}
    await client.call_tool("json_schema_echo", {"schema": schemas["json_schema_2020_12_tool"]})


async def list_skills(client: Client) -> None:
    """List the skills and no more."""
    await client.list_skills()


async def use_skills(client: Client) -> None:
    """Load every skill and read all of its files."""
    for skill in await client.list_skills():
        loaded = await client.load_skill(skill)
        for file in skill.resources:
            await loaded.read(file.uri)


DEEDS: dict[str, Deed] = {
    "initialize": list_tools,
    "tools_call": add_numbers,
    "http-standard-headers": use_everything,
    "http-custom-headers": call_as_told,
    "http-invalid-tool-headers": use_every_tool,
    "sep-2322-client-request-state": go_through_rounds,
    "json-schema-ref-no-deref": list_tools,
    "json-schema-2020-12-preservation": echo_schema,
    "sep-2640-client-no-prefetch": list_skills,
    **dict.fromkeys((f"sep-2640-client-verify-{what}" for what in ("digest", "size", "frontmatter")), use_skills),
}
"""What to do where it is more, or less, than to use the first tool."""


async def main() -> None:
    """Do what the scenario wants and close."""
    # Suite 0.1.x names no revision: it knows the handshake era only.
    version = os.environ.get("MCP_CONFORMANCE_PROTOCOL_VERSION", "")
    deed = DEEDS.get(os.environ["MCP_CONFORMANCE_SCENARIO"], use_first_tool)
    async with client_for(sys.argv[-1], version) as client:
        await deed(client)


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except ToolError as failure:
        sys.exit(f"a tool failed: {failure}")
    except AuthorizationFailed as failure:
        sys.exit(f"not let in: {failure}")
