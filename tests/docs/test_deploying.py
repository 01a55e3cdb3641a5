"""The configurations of docs/guides/deploying.md name what there is: options, commands, paths, ports."""

from __future__ import annotations

import configparser
import json
import os
import re
import socket
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import doc_pages
import yaml

from ferrule.cli.main import COMMANDS, new_parser
from ferrule.server.settings import ServerSettings
from ferrule.transports.http.settings import EndpointSettings, EngineSettings

PAGE = doc_pages.PROJECT / "docs" / "guides" / "deploying.md"
DOCKERFILE = (doc_pages.PROJECT / "release" / "Dockerfile").read_text(encoding="utf-8")
BLOCKS = {block.title or block.language: block.code for block in doc_pages.blocks(PAGE)}
OPTIONS = {"HTTP": (EndpointSettings, EngineSettings), "SERVER": (ServerSettings,)}
RUN = next(command for command in COMMANDS if command.name == "run")


def is_option(variable: str) -> bool:
    """Return whether an environment variable sets an option."""
    _, table, option = variable.split("_", 2)
    return any(option.lower() in settings.__struct_fields__ for settings in OPTIONS[table])


def test_the_file_of_options_names_options() -> None:
    written = tomllib.loads(BLOCKS["ferrule.toml"])
    assert written["run"]["file"] in BLOCKS
    assert [name for name in written["http"] if not is_option(f"FERRULE_HTTP_{name.upper()}")] == []


def test_the_unit_of_systemd_runs_a_command_there_is() -> None:
    unit = configparser.ConfigParser(interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]  # its names have capitals
    unit.read_string(BLOCKS["notes.service"])
    service = unit["Service"]
    program, name, *given = service["ExecStart"].split()
    assert (program.rpartition("/")[2], name) == ("ferrule", RUN.name)
    options = new_parser(RUN)[0].parse(given)
    assert (options.transport, options.workers) == ("http", 4)
    assert int(service["TimeoutStopSec"]) > 5 + tomllib.loads(BLOCKS["ferrule.toml"])["http"]["drain_delay"]


def test_the_manifest_of_kubernetes_names_options_paths_and_ports() -> None:
    deployment, service = yaml.safe_load_all(BLOCKS["notes.yaml"])
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    environment: dict[str, Any] = {each["name"]: each.get("value") for each in container["env"]}
    assert [name for name in environment if not is_option(name)] == []
    probes = [container[name]["httpGet"] for name in ("livenessProbe", "readinessProbe")]
    assert [probe["path"] for probe in probes] == ["/livez", "/readyz"]
    ports = {probe["port"] for probe in probes} | {container["ports"][0]["containerPort"]}
    assert ports | {service["spec"]["ports"][0]["targetPort"]} == {EngineSettings().port}
    drain = float(environment["FERRULE_HTTP_DRAIN_DELAY"])
    assert drain >= 2 * container["readinessProbe"]["periodSeconds"]
    assert deployment["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] > drain + 5
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert deployment["spec"]["selector"]["matchLabels"] == labels == service["spec"]["selector"]


def test_the_health_check_of_the_image_finds_the_server_of_the_page_well(tmp_path: Path) -> None:
    """As in a container: the page's two files, the image's variables, and then its health check."""
    for name in ("server.py", "ferrule.toml"):
        (tmp_path / name).write_text(BLOCKS[name])
    said = dict(line.split(maxsplit=1) for line in DOCKERFILE.splitlines() if line and line[0].isupper())
    command, check = json.loads(said["CMD"]), json.loads(DOCKERFILE.partition("\n    CMD ")[2].partition("\n")[0])
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    given = re.findall(r" -e (\S+)", PAGE.read_text(encoding="utf-8"))
    variables = dict(each.split("=") for each in [*said["ENV"].split(), *given])
    environment = {**os.environ, **variables, "FERRULE_HTTP_PORT": port, "FERRULE_HTTP_DRAIN_DELAY": "0"}
    serving = subprocess.Popen(
        [sys.executable, "-m", *command], cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True
    )
    try:
        assert serving.stderr is not None
        assert f"notes serves MCP at http://0.0.0.0:{port}/mcp" in serving.stderr.readline()
        words = [sys.executable, *(word.replace("8000", port) for word in check[1:])]
        assert subprocess.run(words, timeout=60, check=False).returncode == 0
        stranger = [words[0], words[1], words[2].replace("localhost", "127.0.0.1")]
        assert subprocess.run(stranger, timeout=60, check=False, capture_output=True).returncode != 0
    finally:
        serving.terminate()
        _, rest = serving.communicate(timeout=60)
    assert (serving.returncode, rest) == (0, "")


def test_both_proxies_pass_the_path_to_the_port_and_hold_nothing_back() -> None:
    engine = EngineSettings()
    nginx, caddy = BLOCKS["nginx.conf"], BLOCKS["text"]
    for text in (nginx, caddy):
        assert f"{engine.host}:{engine.port}" in text
        assert EndpointSettings().path in text
    assert "proxy_buffering off;" in nginx
    assert "flush_interval -1" in caddy
    assert nginx.count("{") == nginx.count("}")
    sizes = re.findall(r"client_max_body_size (\d+)m;", nginx)
    assert sizes == ["16"]
