"""`ferrule check TARGET`: whether a server keeps the rules of the protocol, rule by rule."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ferrule.check.answer import Json
from ferrule.check.era import BOTH
from ferrule.check.examination import Examination, Wanted
from ferrule.check.report import OUTCOMES, Finding, Report
from ferrule.check.table import AUTHORIZATION, RULES
from ferrule.check.target import wire_maker
from ferrule.cli.connection import TARGET_HELP, pairs, seconds, target_of
from ferrule.cli.main import FAILED, did_you_mean
from ferrule.cli.output import BOLD, DIM, GREEN, RED, YELLOW, Output, output_of, painted
from ferrule.errors import SetupError
from ferrule.supervision.signals import run_coroutine

if TYPE_CHECKING:
    from ferrule.cli.main import CommandParser

SECONDS = 10.0
STYLES = {"pass": GREEN, "fail": RED, "warn": YELLOW, "skip": DIM}
"""The colour of each outcome."""


def configure(parser: CommandParser) -> None:
    """Add the arguments of `ferrule check`."""
    parser.usage = "ferrule check TARGET [options] [-- command of the server]"
    parser.set_defaults(uses_server=True)
    parser.add_argument("target", nargs="?", metavar="TARGET", help=TARGET_HELP)
    parser.add_argument("--era", choices=BOTH, help="only this protocol generation (default: both)")
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="RULE",
        help="only this rule or area: tools, 'http/*', tools/names",
    )
    parser.add_argument(
        "--call",
        action="append",
        default=[],
        metavar="TOOL[=JSON]",
        help="also call this tool, with these arguments; others are called only if they say that they only read",
    )
    parser.add_argument("--strict", action="store_true", help="let warnings count as failures")
    parser.add_argument("--all", action="store_true", help="show the rules that do not apply as well")
    parser.add_argument("--junit", metavar="FILE", help="write the report as JUnit XML; - for stdout, alone")
    parser.add_argument("--rules", action="store_true", help="list the rules, and check nothing")
    group = parser.add_argument_group("reaching the server")
    group.add_argument("--timeout", type=seconds, metavar="SECONDS", help="how long one answer may take (default: 10)")
    group.add_argument("--header", action="append", default=[], metavar="NAME:VALUE", help="a header of HTTP requests")
    group.add_argument(
        "--env", action="append", default=[], metavar="NAME=VALUE", help="an environment variable of a child process"
    )
    group.add_argument("--cwd", metavar="DIR", help="the working directory of a child process")
    group.add_argument("--server", metavar="NAME", help="the server of an mcp.json that has several")


def execute(options: argparse.Namespace, passed_on: list[str]) -> None:
    """Check a server; ends with exit code 1 where a rule is broken."""
    output = output_of(options)
    if options.rules:
        _list_rules(output)
        return
    wanted = _wanted(options)
    target = target_of(options, passed_on)
    headers = pairs(options.header, ":", "--header")
    env = pairs(options.env, "=", "--env")
    new_wire = wire_maker(target, headers, env, options.cwd)
    name = options.target or " ".join(passed_on)
    if options.junit not in (None, "-") and not Path(options.junit).parent.is_dir():
        raise SetupError(f"cannot write {options.junit}: there is no folder {Path(options.junit).parent}")
    report = run_coroutine(Examination(name, new_wire, wanted).run)
    _write(report, options, output)
    if report.count("fail") or (options.strict and report.count("warn")):
        output.out.flush()
        raise SystemExit(FAILED)


def _wanted(options: argparse.Namespace) -> Wanted:
    known = {rule.id for rule in (*RULES, *AUTHORIZATION)} | {rule.area for rule in (*RULES, *AUTHORIZATION)}
    for each in options.only:
        if each not in known and "*" not in each:
            raise SetupError(f'there is no rule "{each}"{did_you_mean(each, known)}')
    eras = BOTH
    if options.era is not None:
        eras = (options.era,)
    calls: dict[str, Json] = {}
    for word in options.call:
        name, equals, text = word.partition("=")
        calls[name] = _arguments(name, text) if equals else {}
    return Wanted(eras=eras, only=options.only, seconds=options.timeout or SECONDS, calls=calls)


def _arguments(name: str, text: str) -> Json:
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeError):
        raise SetupError(f"--call {name}= needs a JSON object with the arguments") from None


def _list_rules(output: Output) -> None:
    rows = []
    for rule in (*RULES, *AUTHORIZATION):
        levels = "/".join(sorted(set(rule.levels.values())))
        rows.append([rule.id, levels, ", ".join(rule.pages), rule.title])
    if output.json:
        keys = ("rule", "level", "eras", "title")
        output.document([dict(zip(keys, row, strict=True)) for row in rows])
        return
    output.rows(rows)


def _write(report: Report, options: argparse.Namespace, output: Output) -> None:
    if options.junit == "-":
        output.raw(report.to_junit())
        return
    if options.junit is not None:
        try:
            Path(options.junit).write_bytes(report.to_junit())
        except OSError as reason:
            raise SetupError(f"cannot write {options.junit}: {reason.strerror}") from None
    if output.json:
        counts = {outcome: report.count(outcome) for outcome in OUTCOMES}
        output.document({**msgspec.to_builtins(report), "counts": counts})
        return
    server = " ".join(map(str, report.server.values())) or report.target
    output.heading(f"{server} over {report.transport}")
    for spoken in report.eras:
        output.line(f"{spoken.era}: {spoken.version or f'not spoken: {spoken.reason}'}")
        for finding in report.findings:
            if finding.era == spoken.era and (finding.outcome != "skip" or options.all):
                _write_finding(finding, output)
    output.line(report.summary)


def _write_finding(finding: Finding, output: Output) -> None:
    mark = painted(finding.outcome, STYLES[finding.outcome], output.out)
    name = painted(finding.rule, BOLD, output.out)
    output.marked(f"  {mark}  {name}  ", finding.title)
    if finding.outcome in ("fail", "warn"):
        output.line(f"        seen: {finding.seen}")
        output.line(f"        fix: {finding.fix}")
        output.line(f"        see: {finding.reference} ({finding.link})")
    elif finding.outcome == "skip":
        output.line(f"        {finding.seen}")
