"""Who may import whom: the table of the design, read from the imports of every module."""

from __future__ import annotations

import graphlib
from collections.abc import Iterator

import pytest
from source_tree import PACKAGE, Import, Module, is_module, modules

LAYERS = {
    "codes": -1,
    "errors": 0,
    "porting_hints": 0,
    "settings": 1,
    "budgets": 1,
    "identity": 1,
    "wire": 2,
    "schema": 2,
    "protocol": 3,
    "runtime": 4,
    "transports": 4,
    "server": 5,
    "client": 5,
    "auth": 5,
    "routing": 6,
    "workers": 6,
    "gateway": 7,
    "check": 7,
    "cli": 8,
}
STRANGERS = {frozenset({"wire", "schema"}), frozenset({"runtime", "transports"}), frozenset({"server", "client"})}
STRANGERS |= {frozenset({"auth", "server"}), frozenset({"auth", "client"})}
LEAVES = {"supervision", "stores", "telemetry", "validation", "balancing", "registry"}
LEAVES_USED_FROM = 4
LEAVES_MAY_USE = 2
FREE = {"testing", "types", "__init__", "__main__"}
"""The testing kit, and the doors of the package."""

LATE_IMPORTS = {
    ("protocol/seal.py", "cryptography"): "only a server that asks in the stateless era needs a cipher",
    (
        "protocol/seal.py",
        "hashlib",
    ): "only a call that asks is bound, and hashes load a cipher library",
    ("telemetry/receipts.py", "cryptography"): "only a chain with a key is sealed",
    (
        "telemetry/receipt_writer.py",
        "ferrule.telemetry.receipt_database",
    ): "only who keeps receipts in a SQLite file needs SQLite",
    ("auth/jose.py", "joserfc"): "optional: authorization is an extra",
    ("auth/client/store.py", "keyring"): "optional: not every system has one",
    ("auth/jose.py", "cryptography"): "only keys and signatures need it",
    ("stores/stores.py", "hashlib"): "only keys that are used once are hashed, and hashes load a cipher library",
    ("stores/stores.py", "ferrule.stores.sqlite.stores"): "only who keeps things in a file needs SQLite",
    ("stores/stores.py", "ferrule.stores.sqlite.database"): "the same",
    (
        "stores/stores.py",
        "ferrule.stores.redis.cluster",
    ): "optional: Redis is an extra, and its library takes 0.3 s to import",
    ("stores/stores.py", "ferrule.stores.redis.backend"): "the same",
    ("stores/stores.py", "ferrule.stores.redis.bus"): "the same",
    ("stores/stores.py", "ferrule.stores.redis.records"): "the same",
    ("stores/stores.py", "ferrule.stores.redis.sessions"): "the same",
    ("testing/store_kit/verdict.py", "pytest"): "rules can be judged without it",
    ("protocol/needs.py", "hashlib"): "only a call that asks needs fingerprints, and hashes load a cipher library",
    ("runtime/dispatch.py", "ferrule.supervision.tracebacks"): "only what failed has a traceback to show",
    ("server/hosting/runner.py", "ferrule.supervision.tracebacks"): "the same",
    ("runtime/link.py", "ferrule.runtime.batch"): "only peers of one old revision send batches",
    ("server/calls/client_requests.py", "ferrule.server.calls.forms"): "only a handler that asks its client has forms",
    (
        "server/offers/entry.py",
        "ferrule.server.functions.questions",
    ): "only a handler with `Ask` asks",
    (
        "server/offers/prompts.py",
        "ferrule.server.calls.forms",
    ): "only a handler that sends its user to a page asks for it",
    ("server/offers/resources.py", "ferrule.server.calls.forms"): "the same",
    ("server/offers/tools.py", "ferrule.server.calls.forms"): "the same",
    ("server/calls/forms.py", "ferrule.validation.checker"): "only a form given as a JSON Schema is checked by one",
    ("server/functions/arguments.py", "ferrule.validation.checker"): "only wrong arguments are explained by a schema",
    ("server/functions/binder.py", "ferrule.validation.checker"): "only a schema that a user gives, or a wrong result",
    ("server/functions/binder.py", "ferrule.server.functions.dependencies"): "only a handler with providers runs them",
    ("server/offers/completions.py", "ferrule.server.functions.dependencies"): "the same",
    (
        "server/functions/schemas.py",
        "ferrule.server.functions.types.constraints",
    ): "only `Annotated` says more of a type",
    ("server/functions/signatures.py", "ferrule.server.functions.types.constraints"): "the same",
    ("server/functions/types/readable.py", "ferrule.server.functions.types.constraints"): "the same",
    ("server/hosting/links.py", "ferrule.balancing.token_bucket"): "only a link of a handler that reports has a rate",
    ("server/offers/mount_point.py", "ferrule.schema.prefix"): "only a server that is mounted has a prefix",
    ("server/offers/tools.py", "ferrule.server.offers.refusals"): "only one profile of errors has numbers for refusals",
    ("transports/stream.py", "ferrule.wire.header_block"): "only a stream that may have header blocks",
    ("wire/codec.py", "ferrule.wire.rescue"): "only a frame that cannot be read is looked at again",
    ("validation/checker.py", "jsonschema_rs"): "only a schema that a user gives needs a validator",
    ("validation/checker.py", "ferrule.validation.graph"): "only a schema that a user gives is judged before use",
    ("validation/checker.py", "ferrule.validation.patterns"): "the same",
    ("server/calls/forms.py", "urllib"): "only a question that leads to a page has a URL to judge",
    (
        "server/offers/catalogue.py",
        "ferrule.server.offers.spelling",
    ): "only who asks for what is not there is told what is like it",
    ("settings/sources.py", "tomllib"): "only a program with a ferrule.toml reads one",
    ("settings/option.py", "difflib"): "only who asks for what is not there is told what is like it",
    ("client/targets.py", "shutil"): "only a script of another language is looked for a program to run it",
    ("client/targets.py", "ast"): "only a path to a file is looked into",
    ("client/settings.py", "ferrule.porting_hints"): "only who gives an option that is not there is told what to write",
    ("__init__.py", "ferrule.settings.option"): "only who misspells a name is told the right one",
    ("__init__.py", "ferrule.budgets.collector"): "only who names something of ours has modules imported",
    ("__init__.py", "ferrule.porting_hints"): "only who asks for what is not there is told what is elsewhere",
    (
        "server/offers/resource_entry.py",
        "ferrule.server.offers.uri_template",
    ): "only a URI with variables is a template",
    ("server/settings.py", "ferrule.runtime.tasks.settings"): "only a server with tasks keeps them in a way of its own",
    ("server/hosting/host.py", "ferrule.runtime.tasks.tasks"): "only a server with tasks keeps them",
    ("server/hosting/host.py", "ferrule.server.hosting.scope_guard"): "only a server with scopes looks at them",
    ("server/hosting/host.py", "ferrule.server.calls.tasks"): "only a server with tasks keeps them",
    (
        "server/hosting/host.py",
        "ferrule.server.hosting.worker_tasks",
    ): "only a server with workers asks them about tasks",
    (
        "server/hosting/host.py",
        "ferrule.server.hosting.worker_seen",
    ): "only a server with workers shares what counts once",
    ("server/hosting/host.py", "ferrule.stores.metered"): "only a server with metrics counts what its stores do",
    ("server/hosting/builtins.py", "ferrule.runtime.tasks.methods"): "only a server with tasks is asked about them",
    ("server/hosting/runner.py", "uvloop"): "optional: there is none on Windows",
    ("server/hosting/registration.py", "ferrule.registry.local"): "only a server whose registry is asked for keeps one",
    ("supervision/supervisor.py", "random"): "only a child that died is restarted after a delay",
    ("server/settings.py", "ferrule.telemetry.observer"): "only a server with observers needs it",
    ("server/hosting/host.py", "ferrule.server.cluster.node"): "only a server with stores is one of several nodes",
    ("server/hosting/host.py", "ferrule.stores.stores"): "the same",
    ("server/hosting/host.py", "ferrule.runtime.meter"): "only a server with metrics needs it",
    ("server/hosting/host.py", "ferrule.runtime.watch"): "only a server with observers needs it",
    ("server/hosting/host.py", "ferrule.server.hosting.monitor"): "only a server that is watched has one",
    ("server/hosting/host.py", "ferrule.server.middleware.rate_limit"): "only a server with rates limits them",
    ("server/hosting/host.py", "ferrule.telemetry.logs"): "only a server that writes its own log needs it",
    ("telemetry/otel_metrics.py", "opentelemetry"): "optional: only who exports metrics has it",
    ("client/settings.py", "ferrule.telemetry.observer"): "only a client with observers needs it",
    ("client/settings.py", "ferrule.telemetry.metrics"): "only a client with metrics needs it",
    ("client/settings.py", "ferrule.telemetry.recorder"): "only a client with metrics needs it",
    ("routing/router.py", "ferrule.telemetry.router_recorder"): "only a router with metrics needs it",
    ("server/settings.py", "ferrule.stores.stores"): "only a server with stores needs them",
    ("server/settings.py", "ferrule.telemetry.receipt_log"): "only a server with receipts needs it",
    ("server/settings.py", "ferrule.telemetry.tracer"): "only a server that is traced needs it",
    ("client/settings.py", "ferrule.telemetry.tracer"): "only a client that is traced needs it",
    ("telemetry/tracer.py", "ferrule.telemetry.request_span"): "optional: it needs OpenTelemetry",
    ("settings/sources.py", "opentelemetry"): "optional: looked for where the environment names an exporter",
    ("client/link/link.py", "ferrule.runtime.watch"): "only a client with observers needs it",
    ("transports/process/child.py", "ferrule.telemetry.observer"): "only a client with observers needs it",
    ("server/server.py", "ferrule.server.extensions.own_methods"): "only a server with methods of its own needs them",
    (
        "server/extensions/extension.py",
        "ferrule.server.extensions.own_methods",
    ): "only an extension with methods needs them",
    ("server/server.py", "ferrule.server.offers.mounts"): "only a server in which others are mounted keeps them",
    ("server/server.py", "ferrule.server.folder.folder"): "only a server with a folder of files looks into one",
    ("server/server.py", "ferrule.server.discovery.tool_search"): "only a server with a large catalogue searches it",
    ("server/server.py", "ferrule.server.discovery.as_tools"): "only a server for clients that know tools alone",
    ("server/server.py", "ferrule.server.extensions.skills"): "only a server with skills needs them",
    ("server/server.py", "ferrule.server.extensions.apps"): "only a server with pages needs them",
    ("transports/registry.py", "importlib"): "only a transport that is not ours is looked for in other packages",
    ("transports/http/engine/engine.py", "h2"): "optional: HTTP/2 is an extra",
    (
        "transports/http/engine/engine.py",
        "ferrule.transports.http.engine.http2.connection",
    ): "only a peer that speaks HTTP/2 needs it",
    (
        "transports/graphql/listener.py",
        "ferrule.transports.graphql.endpoint",
    ): "optional: only GraphQL needs graphql-core",
    ("transports/process/stdio.py", "ctypes"): "only Python on a C library whose streams must be flushed has it",
    ("budgets/allocator.py", "ctypes"): "six milliseconds, which a program without large messages never needs",
    (
        "client/link/link.py",
        "ferrule.client.features.question_tasks",
    ): "only a client whose questions become tasks keeps them",
    ("client/settings.py", "ferrule.runtime.tasks.settings"): "only a client whose questions become tasks keeps them",
    ("testing/carrier_kit/verdict.py", "pytest"): "rules can be judged without it",
    ("server/server.py", "ferrule.server.openapi.importer"): "only a server made of a web API reads a description",
    ("server/openapi/document.py", "yaml"): "optional: most descriptions are JSON",
    ("cli/host_file.py", "yaml"): "optional: only one host has its servers in YAML",
    ("__main__.py", "ferrule.cli.main"): "Ctrl-C ends it without a traceback while this is loaded, too",
    ("client/targets.py", "json"): "only for a file that is broken, to say on which line",
    ("cli/main.py", "ferrule.settings.option"): "only who asks for what is not there is told what is like it",
    ("cli/main.py", "ferrule.cli.output"): "only an error is written by it, and help is there in no time",
    ("cli/main.py", "importlib"): "only who asks for the version reads it",
    ("cli/main.py", "json"): "only an error for a program is JSON",
    ("cli/main.py", "traceback"): "only who asks for one is shown one",
    ("cli/question.py", "webbrowser"): "only a question that leads to a page opens one",
    ("server/hosting/host.py", "ferrule.runtime.observed_link"): "only where an observer wants what is sent",
    ("cli/run.py", "ferrule.cli.reload"): "only a server that is reloaded needs it",
    ("cli/worker.py", "ferrule.cli.combined"): "what a user's module does wrong is told to the overseer",
    ("cli/run.py", "ferrule.cli.combined"): "what a user's module prints at import must not reach the wire",
}

LOADERS = {
    "server/folder/source_files.py": "the files of a folder are the author's",
    "budgets/collector.py": "for `__init__.py`: each public name is imported when it is first used",
    "server/hosting/runner.py": "only a server that is served as an ASGI app needs one",
    "transports/registry.py": "the table of transports by name",
    "client/client.py": "only a client of several targets is made of clients and a router",
    "server/hosting/host.py": "only a server with routes of its own needs the half of HTTP that serves them",
    "server/cluster/node.py": "only a server with stores needs the half of HTTP that shares sessions",
    "client/link/inbox.py": "a handler may be named as text",
    "cli/target.py": "the user's file",
    "cli/main.py": "the module of the command that is asked for",
    "cli/reload.py": "the user's file, once more",
    "cli/version.py": "the versions of what is installed",
    "testing/__init__.py": "each name is imported when it is first used",
    "testing/plugin.py": "pytest loads it at every start, for any project",
}


def imports_of_ours() -> Iterator[tuple[Module, Import, str]]:
    """Yield every import of one of our modules by another, with the part of the package it belongs to."""
    for module in modules():
        for found in module.imports():
            name, _, rest = found.module.partition(".")
            if name == PACKAGE:
                yield module, found, rest.partition(".")[0] or "__init__"


def may_import(importer: str, imported: str) -> bool:
    """Return whether the table lets one part import another."""
    if importer in FREE or importer == imported:
        return True
    if imported in FREE or frozenset({importer, imported}) in STRANGERS:
        return False
    if importer in LEAVES:
        return LAYERS.get(imported, 99) <= LEAVES_MAY_USE
    if imported in LEAVES:
        return LAYERS[importer] >= LEAVES_USED_FROM
    return LAYERS[imported] < LAYERS[importer]


def test_every_part_of_the_package_has_its_place_in_the_table() -> None:
    parts = {module.part for module in modules()}
    assert sorted(parts - LAYERS.keys() - LEAVES - FREE) == []


def test_every_module_imports_lower_layers_only() -> None:
    wrong = [
        f"{module.place}:{found.line} imports {found.module}"
        for module, found, part in imports_of_ours()
        if not may_import(module.part, part)
    ]
    assert wrong == []


@pytest.mark.parametrize(
    ("importer", "imported"),
    [
        ("runtime", "transports"),
        ("transports", "runtime"),
        ("server", "client"),
        ("client", "server"),
        ("wire", "schema"),
        ("protocol", "runtime"),
        ("protocol", "supervision"),
        ("supervision", "protocol"),
        ("supervision", "stores"),
        ("registry", "runtime"),
        ("server", "testing"),
        ("gateway", "cli"),
        ("errors", "wire"),
        ("identity", "wire"),
        ("identity", "budgets"),
    ],
)
def test_the_table_forbids(importer: str, imported: str) -> None:
    assert not may_import(importer, imported)


@pytest.mark.parametrize(
    ("importer", "imported"),
    [
        ("protocol", "wire"),
        ("wire", "identity"),
        ("transports", "identity"),
        ("runtime", "supervision"),
        ("client", "validation"),
        ("auth", "schema"),
        ("cli", "gateway"),
        ("testing", "server"),
    ],
)
def test_the_table_allows(importer: str, imported: str) -> None:
    assert may_import(importer, imported)


def test_no_module_imports_itself_through_others() -> None:
    graph = {
        module.name: {
            found.module
            for found in module.imports()
            if is_module(found.module) and not found.late and not found.typing_only and found.module != module.name
        }
        for module in modules()
    }
    graphlib.TopologicalSorter(graph).prepare()


def test_the_packages_of_transports_import_each_other_one_way_only() -> None:
    """WebSockets build on HTTP, and HTTP finds them in the table of transports."""
    graph: dict[str, set[str]] = {}
    for module, found, part in imports_of_ours():
        importer, imported = module.name.split(".")[1:3], found.module.split(".")[1:3]
        # Written by `make options` for type checkers; nothing imports it at run time.
        if module.place == "transports/keywords.py":
            continue
        if module.part == part == "transports" and len(imported) == 2 and importer != imported:
            graph.setdefault(".".join(importer), set()).add(".".join(imported))
    assert "transports.http" in graph["transports.websocket"]
    assert [importer for importer in graph if "transports.websocket" in graph[importer]] == ["transports.graphql"]
    graphlib.TopologicalSorter(graph).prepare()


def test_an_import_inside_a_function_has_a_reason() -> None:
    late = {
        (module.place, found.module if found.module.startswith(PACKAGE) else found.module.partition(".")[0])
        for module in modules()
        for found in module.imports()
        if found.late and not found.typing_only
    }
    assert sorted(late ^ LATE_IMPORTS.keys()) == []


def test_a_module_loaded_by_its_name_has_a_reason() -> None:
    loading = {module.place for module in modules() if any(i.module.startswith("importlib") for i in module.imports())}
    assert sorted(loading ^ LOADERS.keys()) == []
