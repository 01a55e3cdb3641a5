"""The table of transports: one row a kind, read by `app.run`, `Client`, `mcp.json` and the command line.

Rule: a row names its classes as "module:Name"; nothing is imported before the row is used.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from msgspec import Struct

from ferrule.budgets.collector import import_to_stay
from ferrule.errors import SetupError
from ferrule.settings.option import require_known
from ferrule.settings.sources import blamed, sourced
from ferrule.transports.contract import Listener, Transport

logger = logging.getLogger("ferrule.transports")

GROUP = "ferrule.transports"
"""The group of entry points under which an installed package offers a `TransportKind`."""

DEFAULT = "stdio"
"""The transport of a server that is not told another."""

Late = str | Callable[..., object]
"""A class or a function, or where to find it: "module:Name"."""


class TransportKind(Struct, frozen=True, kw_only=True):
    """One kind of transport: how a server is reached by it, and how a client reaches a server."""

    name: str
    """What `app.run` and `ferrule run --transport` call it."""
    aliases: tuple[str, ...] = ()
    """Other names for it."""
    help: str = ""
    """A few words for people, shown by `ferrule run --help`."""
    listener: Late | None = None
    """Makes the `Listener`; called with the options of `app.run`. None where it cannot be served by name."""
    prefixes: tuple[str, ...] = ()
    """How the addresses begin that it reaches, in lower case: "toy://"."""
    transport: Late | None = None
    """Makes the `Transport`; called with the address and the client's options."""
    options: str = ""
    """Under which key the client holds its options: "http" for `Client(url, http={…})`; "child" for stdio's."""
    takes_headers: bool = False
    """Whether those have `headers`, so that an mcp.json may give some."""
    settings: tuple[Late, ...] = ()
    """The structs that declare the listener's options, so that a `ferrule.toml` and the environment can set them."""
    claim: Late | None = None
    """Called by the command line before it imports the server's file, which must not print where messages go."""
    hint: str = ""
    """What a person is told who starts it in a terminal."""
    beside_http: Late | None = None
    """Makes what makes its endpoint at the port of an `Http`; called with its options there and the path of MCP."""
    beside_asgi: Late | None = None
    """The same for an ASGI app."""

    def new_listener(self, given: Mapping[str, object]) -> Listener:
        """Make a listener of the options given, of the environment and of the `ferrule.toml` in use."""
        if self.listener is None:
            raise SetupError(f"{self.name} cannot be served by name: make its listener and pass it to app.serve(…)")
        structs: list[Any] = []
        for each in self.settings:
            structs.append(load(each))
        options = sourced(self.name, structs, given)
        make = load(self.listener)
        parameters = inspect.signature(make).parameters
        if not any(each.kind is each.VAR_KEYWORD for each in parameters.values()):
            require_known(self.name, options, parameters)
        try:
            made: Listener = make(**options)
        except SetupError as reason:
            raise blamed(reason, self.name, given) from None
        return made

    def new_transport(self, address: str, options: Mapping[str, object]) -> Transport:
        """Make the transport that reaches an address."""
        if self.transport is None:
            raise SetupError(f"{self.name} has no client: {address!r} cannot be reached")
        made: Transport = load(self.transport)(address, **options)
        return made


class Transports(Mapping[str, TransportKind]):
    """Kinds of transports by name and alias; those of installed packages are looked for when a name is not ours."""

    def __init__(self, *kinds: TransportKind, group: str = GROUP) -> None:
        self._named: dict[str, TransportKind] = {}
        self._prefixes: dict[str, TransportKind] = {}
        self._group = group
        self._complete = False
        for kind in kinds:
            self.register(kind)

    def register(self, kind: TransportKind) -> None:
        """Add a kind; raises SetupError for a name or a prefix that is taken."""
        names = (kind.name, *kind.aliases)
        for name in names:
            if name in self._named:
                raise SetupError(f"there is a transport {name!r} already")
        for prefix in kind.prefixes:
            if prefix in self._prefixes:
                raise SetupError(f"transport {kind.name}: addresses that begin with {prefix!r} are taken")
        self._named.update(dict.fromkeys(names, kind))
        self._prefixes.update(dict.fromkeys(kind.prefixes, kind))

    def __getitem__(self, name: str) -> TransportKind:
        if name not in self._named:
            self._find_installed()
        return self._named[name]

    def __iter__(self) -> Iterator[str]:
        self._find_installed()
        return iter(list(self._named))

    def __len__(self) -> int:
        self._find_installed()
        return len(self._named)

    @property
    def kinds(self) -> list[TransportKind]:
        """Every kind, once."""
        found: list[TransportKind] = []
        for name, kind in self.items():
            if name == kind.name:
                found.append(kind)
        return found

    @property
    def prefixes(self) -> list[str]:
        """How the addresses begin that a client can reach."""
        self._find_installed()
        return list(self._prefixes)

    def of_address(self, address: str) -> TransportKind | None:
        """Return the kind that reaches an address; None for what is no address."""
        start = address.lower()
        kind = self._match(start)
        if kind is None and "://" in start:
            self._find_installed()
            kind = self._match(start)
        return kind

    def _match(self, start: str) -> TransportKind | None:
        for prefix, kind in self._prefixes.items():
            if start.startswith(prefix):
                return kind
        return None

    def _find_installed(self) -> None:
        """Register what installed packages offer, once; one that cannot be used is logged and left out."""
        if self._complete:
            return
        self._complete = True
        from importlib.metadata import entry_points

        for found in entry_points(group=self._group):
            try:
                kind = found.load()
                if not isinstance(kind, TransportKind):
                    raise SetupError(f"{found.value} is not a TransportKind but {kind!r}")
                self.register(kind)
            except Exception as reason:
                logger.warning("the transport %s of an installed package cannot be used: %s", found.name, reason)


def load(where: Late) -> Callable[..., Any]:
    """Return a class or a function, importing it if need be."""
    if not isinstance(where, str):
        return where
    module, _, name = where.partition(":")
    found: Callable[..., object] = getattr(import_to_stay(module), name)
    return found


HTTP_SETTINGS = (
    "ferrule.transports.http.settings:EngineSettings",
    "ferrule.transports.http.settings:EndpointSettings",
)
TRANSPORTS = Transports(
    TransportKind(
        name="stdio",
        help="stdin and stdout of the process that starts it",
        listener="ferrule.transports.process.stdio:Stdio",
        prefixes=("stdio:",),
        transport="ferrule.transports.process.child:from_command_line",
        options="child",
        settings=("ferrule.transports.process.stdio:StdioSettings",),
        claim="ferrule.transports.process.stdio:claim",
        hint="speaks MCP on stdin and stdout: start it from an MCP client",
    ),
    TransportKind(
        name="http",
        aliases=("streamable-http",),
        help="Streamable HTTP at http://127.0.0.1:8000/mcp",
        listener="ferrule.transports.http.listener:Http",
        settings=HTTP_SETTINGS,
        prefixes=("http://", "https://"),
        transport="ferrule.transports.http.client.transport:HttpTransport",
        options="http",
        takes_headers=True,
    ),
    TransportKind(
        name="sse",
        help="HTTP+SSE, for clients older than Streamable HTTP",
        listener="ferrule.transports.http.listener:Sse",
        settings=HTTP_SETTINGS,
        prefixes=("sse+http://", "sse+https://"),
        transport="ferrule.transports.http.client.old_sse:SseTransport",
        options="http",
        takes_headers=True,
    ),
    TransportKind(
        name="ws",
        help="WebSocket at ws://127.0.0.1:8000/mcp/ws",
        listener="ferrule.transports.websocket.listener:WebSocket",
        settings=("ferrule.transports.websocket.settings:WebSocketSettings", *HTTP_SETTINGS),
        prefixes=("ws://", "wss://"),
        transport="ferrule.transports.websocket.client:WebSocketTransport",
        options="websocket",
        takes_headers=True,
        beside_http="ferrule.transports.websocket.endpoint:beside_http",
        beside_asgi="ferrule.transports.websocket.asgi:beside_asgi",
    ),
    TransportKind(
        name="graphql",
        help="GraphQL at http://127.0.0.1:4000/graphql",
        listener="ferrule.transports.graphql.listener:Graphql",
        settings=("ferrule.transports.graphql.settings:GraphqlSettings", *HTTP_SETTINGS),
    ),
    TransportKind(
        name="tcp",
        help="TCP on port 5000",
        listener="ferrule.transports.tcp.listener:Tcp",
        settings=("ferrule.transports.tcp.settings:TcpSettings",),
        prefixes=("tcp://", "tls://"),
        transport="ferrule.transports.tcp.transport:TcpTransport",
        options="tcp",
    ),
    TransportKind(
        name="unix",
        help="a Unix socket at --path",
        listener="ferrule.transports.tcp.listener:Unix",
        settings=("ferrule.transports.tcp.settings:UnixSettings",),
        prefixes=("unix:",),
        transport="ferrule.transports.tcp.transport:TcpTransport",
        options="tcp",
    ),
)
"""Every kind of transport there is."""

register = TRANSPORTS.register
