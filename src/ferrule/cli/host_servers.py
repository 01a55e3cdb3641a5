"""The servers in the configuration of an AI host, read back and changed one by one."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

from msgspec import Struct

from ferrule.cli.host_file import BYTE_ORDER, JsonText, Unreadable, edited, read_yaml
from ferrule.cli.install import Host, Launch, difference, read_text, write
from ferrule.errors import SetupError

COMMANDS = ("command", "cmd")
URLS = ("url", "serverUrl", "httpUrl", "uri")
VARIABLES = ("env", "envs")
HEADERS = ("headers", "http_headers")
TABLES = ("mcpServers", "servers", "context_servers", "mcp_servers", "extensions")


class Entry(Struct, frozen=True):
    """One server, as the file of a host has it."""

    name: str
    raw: dict[str, Any]

    @property
    def command(self) -> str:
        """The program that is started; empty for a URL."""
        return self._text(COMMANDS)

    @property
    def arguments(self) -> list[str]:
        """What the program is given."""
        found = self.raw.get("args")
        if not isinstance(found, list):
            return []
        return list(map(str, found))

    @property
    def url(self) -> str:
        """Where the server is; empty for a program."""
        return self._text(URLS)

    @property
    def variables(self) -> dict[str, str]:
        """The environment variables that are set for it."""
        return self._texts(VARIABLES)

    @property
    def headers(self) -> dict[str, str]:
        """The headers that are sent to it."""
        return self._texts(HEADERS)

    @property
    def cwd(self) -> str | None:
        """The folder it is started in, where the file names one."""
        found = self.raw.get("cwd")
        if isinstance(found, str) and found:
            return found
        return None

    @property
    def disabled(self) -> bool:
        """Whether the host is told to leave it alone."""
        return self.raw.get("disabled") is True or self.raw.get("enabled") is False

    def with_command(self, command: str, arguments: list[str]) -> Entry:
        """Return the server with another command."""
        changed = dict(self.raw)
        for key in COMMANDS:
            if key in changed:
                changed[key] = command
        if "args" in changed or arguments:
            changed["args"] = arguments
        return Entry(self.name, changed)

    def with_url(self, url: str) -> Entry:
        """Return the server at another URL."""
        changed = dict(self.raw)
        for key in URLS:
            if key in changed:
                changed[key] = url
        return Entry(self.name, changed)

    def _text(self, keys: tuple[str, ...]) -> str:
        for key in keys:
            if isinstance(self.raw.get(key), str):
                return str(self.raw[key])
        return ""

    def _texts(self, keys: tuple[str, ...]) -> dict[str, str]:
        for key in keys:
            found = self.raw.get(key)
            if isinstance(found, dict):
                return {str(name): str(value) for name, value in found.items()}
        return {}


class HostServers:
    """The file of one host."""

    def __init__(self, host: Host, path: Path) -> None:
        self.host = host
        self.path = path
        self.text = read_text(path)
        """What the file says; None where there is none."""
        self._original = self.text
        """What it said before anything was fixed: that is what the backup holds."""

    def read(self) -> Any:
        """Return the whole configuration; raise Unreadable, with the line, for what is none."""
        text = (self.text or "").removeprefix(BYTE_ORDER)
        if not text.strip():
            return {}
        if self.host.format == "json":
            return JsonText(text).read().value
        if self.host.format == "toml":
            try:
                return tomllib.loads(text)
            except tomllib.TOMLDecodeError as reason:
                raise Unreadable(f"it is not TOML: {reason}") from None
        return _yaml(text)

    def is_plain(self) -> bool:
        """Return whether a JSON file is JSON without comments and trailing commas."""
        try:
            json.loads((self.text or "{}").removeprefix(BYTE_ORDER) or "{}")
        except ValueError:
            return False
        return True

    def entries(self, config: Any) -> list[Entry]:
        """Return the servers of a configuration."""
        table = config.get(self.host.table) if isinstance(config, dict) else None
        if not isinstance(table, dict):
            return []
        return [Entry(name, raw) for name, raw in table.items() if isinstance(raw, dict)]

    def other_table(self, config: Any) -> str:
        """Return the name under which another host would have its servers, where this one has none; else nothing."""
        if not isinstance(config, dict) or self.host.table in config:
            return ""
        for name in TABLES:
            if name != "extensions" and isinstance(config.get(name), dict) and config[name]:
                return name
        return ""

    def replace(self, entry: Entry) -> list[str]:
        """Write one server anew and keep what the file was; returns the lines that changed, without secrets."""
        before = self.text or ""
        try:
            after = edited(self.host.format, before, self.host.table, entry.name, entry.raw)
        except Unreadable as reason:
            raise SetupError(f"{self.path} is not changed: {reason}") from None
        return self._written(before, after, entry)

    def write_plain(self, config: Any) -> list[str]:
        """Write the file without comments and trailing commas, and keep what it was."""
        after = json.dumps(config, indent=2, ensure_ascii=False) + "\n"
        return self._written(self.text or "", after, Entry("", {}))

    def _written(self, before: str, after: str, entry: Entry) -> list[str]:
        if after == before:
            return []
        write(self.path, self._original, after)
        self.text = after
        secrets = Launch(name=entry.name, env=entry.variables, headers=entry.headers)
        return difference(before, after, str(self.path), secrets)


def _yaml(text: str) -> Any:
    value = read_yaml(text)
    if value is None:
        raise SetupError("reading it needs PyYAML: pip install pyyaml")
    return value
