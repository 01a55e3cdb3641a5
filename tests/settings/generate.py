"""Write what follows from the structs of options: the keywords a type checker sees, and the tables of the guide.

`make options` runs it after an option was added or changed; a test fails until then.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import NoneType
from typing import Any

from msgspec import Struct

from ferrule.settings.option import kinds_of_option, settable

PROJECT = Path(__file__).resolve().parents[2]
SOURCE = PROJECT / "src"
GUIDE = PROJECT / "docs" / "guides" / "configuration.md"
LONGEST_LINE = 120
TABLE = re.compile(r"(<!-- options: (\w+(?:\.\w+)?) -->\n).*?(<!-- end -->)", re.DOTALL)


@dataclass(frozen=True)
class Field:
    """One option as its struct declares it."""

    owner: type[Struct]
    name: str
    annotation: str
    help: str
    module: str
    """Where its annotation is written."""


@dataclass(frozen=True)
class Keywords:
    """One TypedDict: whose options it has, and how they differ from those of the structs."""

    says: str
    structs: tuple[str, ...]
    without: tuple[str, ...] = ()
    only: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """The only options of a struct, by its place."""
    written: dict[str, str] = field(default_factory=dict)
    """Annotations other than the structs'."""
    base: str = ""
    """Another TypedDict whose keywords it has too."""
    more: dict[str, str] = field(default_factory=dict)
    """Keywords that are parameters of `Server`, with their annotations there."""


ENDPOINT = "ferrule.transports.http.settings:EndpointSettings"
ENGINE = "ferrule.transports.http.settings:EngineSettings"
HTTP2 = "ferrule.transports.http.settings:Http2Settings"
WEBSOCKET = "ferrule.transports.websocket.settings:WebSocketSettings"
GRAPHQL = "ferrule.transports.graphql.settings:GraphqlSettings"
TCP = "ferrule.transports.tcp.settings:TcpSettings"
UNIX = "ferrule.transports.tcp.settings:UnixSettings"
STDIO = "ferrule.transports.process.stdio:StdioSettings"
HTTP_CLIENT = "ferrule.transports.http.client.options:HttpOptions"
TCP_CLIENT = "ferrule.transports.tcp.settings:TcpOptions"
WEBSOCKET_CLIENT = "ferrule.transports.websocket.settings:WebSocketOptions"
RUN = "ferrule.server.settings:RunSettings"
SERVER = "ferrule.server.settings:ServerSettings"
CLIENT = "ferrule.client.settings:ClientSettings"
ROUTING = "ferrule.routing.settings:RoutingSettings"
TOOL = "ferrule.server.offers.descriptions:ToolOptions"
RESOURCE = "ferrule.server.offers.resources:ResourceOptions"
PROMPT = "ferrule.server.offers.prompts:PromptOptions"
PAGE = "ferrule.server.extensions.apps:PageOptions"
OPENAPI = "ferrule.server.openapi.rules:ImportOptions"
OAUTH = "ferrule.auth.client.settings:OAuthOptions"
CREDENTIALS = "ferrule.auth.client.settings:ClientCredentialsOptions"
WORKLOAD = "ferrule.auth.client.settings:WorkloadOptions"
ENTERPRISE = "ferrule.auth.client.settings:EnterpriseOptions"
PROTECTION = "ferrule.auth.server.settings:ResourceSettings"
TOKENS = "ferrule.auth.server.settings:TokenSettings"
PROXY = "ferrule.auth.proxy.settings:ProxySettings"
DEVSERVER = "ferrule.auth.devserver.server:DevSettings"

OF_SERVER = {
    "name": "str | None",
    "instructions": "str | None",
    "version": "str",
    "lifespan": "Lifespan | Sequence[Lifespan] | None",
    "middleware": "Iterable[AnyLayer]",
}
OF_TRANSPORTS = {
    "http": "HttpClientKeywords | None",
    "tcp": "TcpClientKeywords | None",
    "websocket": "WebSocketClientKeywords | None",
}
BESIDE_HTTP = {"websocket": "bool | WebSocketKeywords", "http2": "bool | Http2Keywords | None"}

MODULES: dict[str, dict[str, Keywords]] = {
    "ferrule.transports.keywords": {
        "StdioKeywords": Keywords("The options of `Stdio`.", (STDIO,)),
        "WebSocketKeywords": Keywords("The options of WebSockets beside HTTP.", (WEBSOCKET,)),
        "Http2Keywords": Keywords("The options of HTTP/2.", (HTTP2,)),
        "HttpKeywords": Keywords("The options of `Http`.", (ENDPOINT, ENGINE), written=BESIDE_HTTP),
        "AsgiKeywords": Keywords("The options of an ASGI app, beside its path and WebSockets.", (ENDPOINT,), ("path",)),
        "WebSocketListenerKeywords": Keywords(
            "The options of `WebSocket`.",
            (WEBSOCKET, ENGINE, ENDPOINT),
            without=("websocket", "http2"),
            only={ENDPOINT: ("allowed_origins", "allowed_hosts")},
        ),
        "ListenerKeywords": Keywords(
            "The options most transports have, for one whose name is not written in the program.",
            (ENDPOINT, ENGINE),
            only={ENDPOINT: ("path",), ENGINE: ("host", "port")},
        ),
        "TcpKeywords": Keywords("The options of `Tcp`.", (TCP,)),
        "UnixKeywords": Keywords("The options of `Unix`.", (UNIX,)),
        "HttpClientKeywords": Keywords("The options of reaching a server over HTTP.", (HTTP_CLIENT,)),
        "TcpClientKeywords": Keywords("The options of reaching a server over TCP or a Unix socket.", (TCP_CLIENT,)),
        "WebSocketClientKeywords": Keywords("The options of reaching a server over WebSocket.", (WEBSOCKET_CLIENT,)),
    },
    "ferrule.transports.graphql.keywords": {
        "GraphqlKeywords": Keywords(
            "The options of `Graphql`.",
            (GRAPHQL, ENGINE, ENDPOINT),
            without=("websocket",),
            only={ENDPOINT: ("allowed_origins", "allowed_hosts")},
        ),
    },
    "ferrule.server.keywords": {
        "ServerKeywords": Keywords("The options of a server.", (SERVER,)),
        "ToolKeywords": Keywords("The options of a tool.", (TOOL,)),
        "ResourceKeywords": Keywords("The options of a resource or a template.", (RESOURCE,)),
        "PromptKeywords": Keywords("The options of a prompt.", (PROMPT,)),
        "PageKeywords": Keywords(
            "The options of a page.", (PAGE, RESOURCE), without=("mime_type", "meta", "contents_meta")
        ),
        "OpenApiKeywords": Keywords(
            "The options of a server made of a web API.", (OPENAPI,), base="ServerKeywords", more=OF_SERVER
        ),
    },
    "ferrule.auth.client.keywords": {
        "OAuthKeywords": Keywords("The options of `OAuth`.", (OAUTH,)),
        "ClientCredentialsKeywords": Keywords("The options of `ClientCredentials`.", (CREDENTIALS,)),
        "WorkloadKeywords": Keywords("The options of `WorkloadIdentity`.", (WORKLOAD,)),
        "EnterpriseKeywords": Keywords("The options of `EnterpriseManaged`.", (ENTERPRISE,)),
    },
    "ferrule.auth.devserver.keywords": {
        "DevServerKeywords": Keywords("The options of `DevServer`.", (DEVSERVER,)),
    },
    "ferrule.auth.proxy.keywords": {
        "ProxyKeywords": Keywords("The options of an OAuth proxy.", (PROXY,)),
    },
    "ferrule.auth.server.keywords": {
        "ProtectionKeywords": Keywords("The options of every verifier of tokens.", (PROTECTION,)),
        "TokenKeywords": Keywords("The options of a verifier of tokens that say who issued them.", (TOKENS,)),
    },
    "ferrule.client.keywords": {
        "ClientKeywords": Keywords("The options of a client.", (CLIENT, ROUTING), written=OF_TRANSPORTS)
    },
}

TABLES: dict[str, tuple[str, ...]] = {
    "run": (RUN,),
    "server": (SERVER,),
    "client": (CLIENT,),
    "routing": (ROUTING,),
    "client.http": (HTTP_CLIENT,),
    "client.tcp": (TCP_CLIENT,),
    "client.websocket": (WEBSOCKET_CLIENT,),
    "stdio": (STDIO,),
    "http": (ENDPOINT, ENGINE),
    "http.http2": (HTTP2,),
    "ws": (WEBSOCKET,),
    "graphql": (GRAPHQL,),
    "tcp": (TCP,),
    "unix": (UNIX,),
}
"""The tables of `ferrule.toml` by their names, and whose options they have."""


# -- reading structs


def struct_at(place: str) -> type[Struct]:
    """Return a struct by its place, as in `module:Name`."""
    module, _, name = place.partition(":")
    found: type[Struct] = getattr(importlib.import_module(module), name)
    return found


@cache
def module_tree(module: str) -> ast.Module:
    """Return a module of ours, parsed."""
    path = SOURCE.joinpath(*module.split(".")).with_suffix(".py")
    return ast.parse(path.read_text(encoding="utf-8"))


def declared(owner: type) -> Iterator[tuple[str, str, str]]:
    """Yield the fields a class declares itself: name, annotation and help."""
    body: list[ast.stmt] = []
    for node in module_tree(owner.__module__).body:
        if isinstance(node, ast.ClassDef) and node.name == owner.__name__:
            body = node.body
    for position, node in enumerate(body):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id, ast.unparse(node.annotation), _text(body[position + 1 : position + 2])


def _text(following: list[ast.stmt]) -> str:
    """Return the string that stands below a field; empty where there is none."""
    for node in following:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            return node.value.value
    return ""


def fields(place: str) -> list[Field]:
    """Return the options of a struct, those of its bases included, in their order."""
    struct = struct_at(place)
    found: dict[str, Field] = {}
    for owner in struct.__mro__:
        if owner.__module__.startswith("ferrule"):
            for name, annotation, text in declared(owner):
                found.setdefault(name, Field(struct, name, annotation, text, owner.__module__))
    return [found[name] for name in struct.__struct_fields__]


def chosen(keywords: Keywords) -> list[Field]:
    """Return the options of a TypedDict; of two with one name, the first struct's."""
    found: dict[str, Field] = {}
    for place in keywords.structs:
        for each in fields(place):
            wanted = place not in keywords.only or each.name in keywords.only[place]
            if wanted and each.name not in keywords.without:
                found.setdefault(each.name, each)
    return list(found.values())


# -- writing keywords


def names_in(annotation: str) -> set[str]:
    """Return the names an annotation uses that have to be imported."""
    names = {node.id for node in ast.walk(ast.parse(annotation)) if isinstance(node, ast.Name)}
    return names - vars(builtins).keys()


def home_of(name: str, module: str) -> str:
    """Return the module a name of another module is imported from; that module itself where it is made there."""
    if name in ("Literal", "Callable"):
        return "typing" if name == "Literal" else "collections.abc"
    if name in MODULES["ferrule.transports.keywords"]:
        return "ferrule.transports.keywords"
    for node in ast.walk(module_tree(module)):
        if isinstance(node, ast.ImportFrom) and any((alias.asname or alias.name) == name for alias in node.names):
            return str(node.module)
    return module


def written_out(annotation: str, module: str) -> str:
    """Return an annotation with the aliases of our modules written out, so that keywords import none of them.

    Only those that need nothing but the standard library: `Framing` is `Literal["line", …]`.
    """
    for name in names_in(annotation):
        home = home_of(name, module)
        meaning = alias_in(home, name) if home.startswith("ferrule.transports") else None
        if meaning is not None and names_in(meaning) <= {"Literal", "Callable"}:
            annotation = re.sub(rf"\b{name}\b", meaning, annotation)
    return annotation


def alias_in(module: str, name: str) -> str | None:
    """Return what a module assigns to a name; None for what is no plain assignment."""
    for node in module_tree(module).body:
        if isinstance(node, ast.Assign) and [ast.unparse(target) for target in node.targets] == [name]:
            return ast.unparse(node.value)
    return None


def module_text(name: str, classes: dict[str, Keywords]) -> str:
    """Return the source of a module of keywords."""
    imports: dict[str, set[str]] = {"typing": {"TypedDict"}}
    body: list[str] = []
    for title, keywords in classes.items():
        body += [
            "",
            "",
            f"class {title}({keywords.base or 'TypedDict'}, total=False):",
            f'    """{keywords.says}"""',
            "",
        ]
        for each in chosen(keywords):
            annotation = keywords.written.get(each.name, written_out(each.annotation, each.module))
            body.append(f"    {each.name}: {annotation}")
            if each.help:
                body.append(f'    """{each.help}"""')
            for used in names_in(annotation) - classes.keys():
                imports.setdefault(home_of(used, each.module), set()).add(used)
        for keyword, annotation in keywords.more.items():
            body.append(f"    {keyword}: {annotation}")
            for used in names_in(annotation):
                imports.setdefault(home_of(used, "ferrule.server.server"), set()).add(used)
    lines = [f'"""The options of {name.split(".")[1]} as keyword arguments, for type checkers and editors.', ""]
    lines += [
        "Written by `make options` from the structs that declare them; nothing imports it at run time.",
        '"""',
        "",
    ]
    lines += ["from __future__ import annotations", ""]
    for module, used in sorted(imports.items()):
        lines.append(f"from {module} import {', '.join(sorted(used))}")
    return formatted("\n".join([*lines, *body, ""]))


def formatted(source: str) -> str:
    """Return Python source as the formatter and the import sorter of the project leave it."""
    ruff = Path(sys.executable).with_name("ruff")
    for command in (["check", "--quiet", "--select", "I", "--fix"], ["format", "--quiet"]):
        done = subprocess.run(
            [ruff, *command, "--stdin-filename", "src/ferrule/keywords.py", "-"],
            input=source,
            capture_output=True,
            text=True,
            check=True,
            cwd=PROJECT,
        )
        source = done.stdout
    return source


# -- writing tables

IN_TOML = {"True or False": "true or false", "a str": "a string", "a path": "a string", "a set or a list": "a list"}
"""What a file calls the kinds of Python."""


def cell(text: str) -> str:
    """Return a text as it may stand in a table."""
    return " ".join(text.split()).replace("|", "\\|")


def default_of(option: Field) -> str:
    """Return the default of an option as the guide shows it."""
    struct = option.owner
    names = struct.__struct_fields__
    position = names.index(option.name) - (len(names) - len(struct.__struct_defaults__))
    if position < 0:
        return "required"
    value: Any = struct.__struct_defaults__[position]
    if "factory" in repr(value):
        return "none"
    return shown(value)


def shown(value: object) -> str:
    """Return a value as TOML writes it, with words for what it cannot."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, str):
        return f'`"{value}"`'
    if isinstance(value, tuple | list):
        items = ", ".join(f'"{item}"' if isinstance(item, str) else str(item) for item in value)
        return f"`[{items}]`"
    return f"`{value:g}`" if isinstance(value, float) else f"`{value}`"


def may_be(option: Field) -> str:
    """Return what an option may be, in words."""
    kinds = kinds_of_option(option.owner, option.name)
    words = [IN_TOML.get(kind.bounded, kind.bounded) for kind in kinds if settable(kind)]
    if words and any(kind.base is NoneType for kind in kinds):
        words.append("none")
    return " or ".join(dict.fromkeys(words))


def table(places: Iterable[str]) -> str:
    """Return the table of the options of some structs that a file can set."""
    lines = ["| option | may be | default | |", "|---|---|---|---|"]
    for place in places:
        for option in fields(place):
            words = may_be(option)
            if words:
                lines.append(f"| `{option.name}` | {cell(words)} | {cell(default_of(option))} | {cell(option.help)} |")
    return "\n".join(lines)


def guide_text(text: str) -> str:
    """Return the guide with its tables as the structs want them."""
    return TABLE.sub(lambda found: f"{found[1]}\n{table(TABLES[found[2]])}\n\n{found[3]}", text)


# -- all of it


def files() -> dict[Path, str]:
    """Return every file that follows from the structs, and what it has to hold."""
    found = {}
    for name, classes in MODULES.items():
        found[SOURCE.joinpath(*name.split(".")).with_suffix(".py")] = module_text(name, classes)
    if GUIDE.exists():
        found[GUIDE] = guide_text(GUIDE.read_text(encoding="utf-8"))
    return found


if __name__ == "__main__":
    for path, text in files().items():
        path.write_text(text, encoding="utf-8")
        print(path.relative_to(PROJECT))
