"""The GraphQL schema, the same for every server, and what resolves its fields: each is one MCP request."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from graphql import GraphQLObjectType, GraphQLResolveInfo, GraphQLSchema, build_schema

from ferrule.schema.notices import PROMPTS_CHANGED, RESOURCES_CHANGED, TOOLS_CHANGED
from ferrule.transports.graphql.requests import Notifications, Requests

SCHEMA_TEXT = '''
"""Any JSON value."""
scalar JSON

type Query {
  server: Server!
  tools(cursor: String): Tools!
  resources(cursor: String): Resources!
  resourceTemplates(cursor: String): ResourceTemplates!
  prompts(cursor: String): Prompts!
  readResource(uri: String!): ResourceResult!
  getPrompt(name: String!, arguments: JSON): PromptResult!
}

type Mutation {
  callTool(name: String!, arguments: JSON): ToolResult!
}

type Subscription {
  """One of these resources has changed."""
  resourceUpdated(uris: [String!]!): ResourceUpdated!
  """One of these lists has changed."""
  listChanged(lists: [List!] = [TOOLS, RESOURCES, PROMPTS]): ListChanged!
}

enum List { TOOLS RESOURCES PROMPTS }

type Server {
  supportedVersions: [String!]!
  capabilities: JSON!
  instructions: String
}

type Tools { items: [Tool!]! nextCursor: String }
type Resources { items: [Resource!]! nextCursor: String }
type ResourceTemplates { items: [ResourceTemplate!]! nextCursor: String }
type Prompts { items: [Prompt!]! nextCursor: String }

type Tool {
  name: String!
  title: String
  description: String
  inputSchema: JSON!
  outputSchema: JSON
  annotations: JSON
  icons: JSON
  _meta: JSON
}

type Resource {
  uri: String!
  name: String!
  title: String
  description: String
  mimeType: String
  size: Float
  annotations: JSON
  icons: JSON
  _meta: JSON
}

type ResourceTemplate {
  uriTemplate: String!
  name: String!
  title: String
  description: String
  mimeType: String
  annotations: JSON
  icons: JSON
  _meta: JSON
}

type Prompt {
  name: String!
  title: String
  description: String
  arguments: [PromptArgument!]
  icons: JSON
  _meta: JSON
}

type PromptArgument { name: String! title: String description: String required: Boolean }

type ResourceResult { contents: [ResourceContents!]! _meta: JSON }

"""Either `text`, or `blob`: bytes in base64."""
type ResourceContents { uri: String! mimeType: String text: String blob: String _meta: JSON }

type PromptResult { description: String messages: [PromptMessage!]! _meta: JSON }
type PromptMessage { role: String! content: Content! }

type ToolResult {
  content: [Content!]!
  structuredContent: JSON
  """Whether the tool failed; `content` says why."""
  isError: Boolean!
  _meta: JSON
}

"""Text, an image or audio (`data` in base64), a link to a resource, or a resource itself."""
type Content {
  type: String!
  text: String
  data: String
  mimeType: String
  uri: String
  name: String
  title: String
  description: String
  resource: ResourceContents
  annotations: JSON
  _meta: JSON
}

type ResourceUpdated { uri: String! _meta: JSON }
type ListChanged { list: List! }
'''

LISTS = {"TOOLS": "toolsListChanged", "RESOURCES": "resourcesListChanged", "PROMPTS": "promptsListChanged"}
CHANGED = {TOOLS_CHANGED: "TOOLS", RESOURCES_CHANGED: "RESOURCES", PROMPTS_CHANGED: "PROMPTS"}

Resolver = Callable[..., Awaitable[dict[str, Any]]]
Details = GraphQLResolveInfo[Requests]
"""What a resolver is told of its field; its context is what the caller asks with."""


def _page_of(method: str, member: str) -> Resolver:
    """Return the resolver of a list: one page of it."""

    async def resolve(source: object, details: Details, cursor: str | None = None) -> dict[str, Any]:
        params = {} if cursor is None else {"cursor": cursor}
        result = await details.context.ask(method, params)
        return {"items": result[member], "nextCursor": result.get("nextCursor")}

    return resolve


async def _server(source: object, details: Details) -> dict[str, Any]:
    return await details.context.ask("server/discover", {})


async def _read_resource(source: object, details: Details, uri: str) -> dict[str, Any]:
    return await details.context.ask("resources/read", {"uri": uri})


async def _get_prompt(source: object, details: Details, name: str, arguments: object = None) -> dict[str, Any]:
    return await details.context.ask("prompts/get", _named(name, arguments))


async def _call_tool(source: object, details: Details, name: str, arguments: object = None) -> dict[str, Any]:
    result = await details.context.ask("tools/call", _named(name, arguments))
    return {"isError": False, **result}


def _named(name: str, arguments: object) -> dict[str, object]:
    if arguments is None:
        return {"name": name}
    return {"name": name, "arguments": arguments}


async def _watch_resources(source: object, details: Details, uris: list[str]) -> AsyncIterator[Any]:
    notifications = await details.context.listen({"resourceSubscriptions": uris})
    return _events(notifications, lambda told: {"resourceUpdated": told["params"]})


async def _watch_lists(source: object, details: Details, lists: list[str]) -> AsyncIterator[Any]:
    wanted = {}
    for each in lists:
        wanted[LISTS[each]] = True
    notifications = await details.context.listen(wanted)
    return _events(notifications, lambda told: {"listChanged": {"list": CHANGED[told["method"]]}})


async def _events(
    notifications: Notifications, event: Callable[[dict[str, Any]], dict[str, Any]]
) -> AsyncIterator[dict[str, Any]]:
    """Yield the root value of each event; whoever stops reading has unsubscribed."""
    try:
        async for told in notifications:
            yield event(told)
    finally:
        notifications.end()


QUERIES: dict[str, Resolver] = {
    "server": _server,
    "tools": _page_of("tools/list", "tools"),
    "resources": _page_of("resources/list", "resources"),
    "resourceTemplates": _page_of("resources/templates/list", "resourceTemplates"),
    "prompts": _page_of("prompts/list", "prompts"),
    "readResource": _read_resource,
    "getPrompt": _get_prompt,
}
MUTATIONS: dict[str, Resolver] = {"callTool": _call_tool}
SUBSCRIPTIONS = {"resourceUpdated": _watch_resources, "listChanged": _watch_lists}


def _new_schema() -> GraphQLSchema:
    schema = build_schema(SCHEMA_TEXT)
    for kind, resolvers in ((schema.query_type, QUERIES), (schema.mutation_type, MUTATIONS)):
        for name, resolve in resolvers.items():
            _field(kind, name).resolve = resolve
    for name, subscribe in SUBSCRIPTIONS.items():
        _field(schema.subscription_type, name).subscribe = subscribe
    return schema


def _field(kind: GraphQLObjectType | None, name: str) -> Any:
    assert kind is not None
    return kind.fields[name]


SCHEMA = _new_schema()
