"""`ferrule receipts verify|tail|show|export PLACE`: check and read what `Server(receipts=PLACE)` has written.

Rule: what a peer wrote is shown with its control characters escaped, and is no formula in a spreadsheet.
"""

from __future__ import annotations

import argparse
import csv
import os
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET, Struct

from ferrule.errors import SetupError
from ferrule.supervision.logs import escaped
from ferrule.telemetry.receipt_writer import ReceiptPlace, is_database, place_of, verify_place
from ferrule.telemetry.receipts import CheckSignature, Receipt, Verification, checker, public_key

if TYPE_CHECKING:
    from ferrule.cli.main import CommandParser

NEWEST = 10
"""How many records `tail` shows unless it is told."""
FORMULAS = ("=", "+", "-", "@")
"""How a cell begins that a spreadsheet takes for a formula."""
COLUMNS = (
    *("file", "n", "t", "node", "kind", "issuer", "subject", "client", "peer", "peer_version", "session"),
    *("method", "target", "outcome", "code", "ms", "args", "result", "args_bytes", "result_bytes", "trace", "prev"),
)

_read = msgspec.json.Decoder(Receipt).decode
_write = msgspec.json.Encoder().encode


class Line(Struct, frozen=True):
    """One record in its file."""

    file: str
    written: bytes
    receipt: Receipt


def configure(parser: CommandParser) -> None:
    """Add the arguments of `ferrule receipts`."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="verify|tail|show|export")
    verify = actions.add_parser("verify", help="check that no record was changed, removed or moved")
    verify.add_argument("--key", metavar="PEM", help="the public key of the seals, which are checked with it")
    tail = actions.add_parser("tail", help="show the newest records")
    tail.add_argument("-n", type=int, default=NEWEST, metavar="COUNT", help=f"how many (default: {NEWEST})")
    show = actions.add_parser("show", help="show records that fit")
    export = actions.add_parser("export", help="write all records, as JSON lines unless told otherwise")
    for action in (verify, tail, show, export):
        action.add_argument("place", metavar="DIR", help="the folder of the receipts, or their SQLite file")
        action.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="as JSON")
    for action in (tail, show, export):
        action.add_argument("--csv", action="store_true", help="as comma-separated values")
        action.add_argument("--tsv", action="store_true", help="as tab-separated values")
    for name in ("kind", "method", "target", "outcome", "subject", "session", "trace"):
        show.add_argument(f"--{name}", metavar="TEXT", help=f"only records of this {name}")


def execute(options: argparse.Namespace, passed_on: list[str]) -> None:
    """Run the command; ends with exit code 1 where a chain is not right."""
    place = _place(Path(options.place))
    try:
        _read_place(place, options)
    except BrokenPipeError:
        # Whoever read has seen enough, as `head` does; Python would complain once more at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as reason:
        raise SetupError(f"the receipts in {options.place} cannot be read: {reason}") from None


def _place(path: Path) -> ReceiptPlace:
    if is_database(path):
        if not path.is_file():
            raise SetupError(f"there is no file {path}: give the one of Server(receipts=…)")
    elif not path.is_dir():
        raise SetupError(f"there is no folder {path}: give the one of Server(receipts=…)")
    return place_of(path)


def _read_place(place: ReceiptPlace, options: argparse.Namespace) -> None:
    if not place.names():
        raise SetupError(f"there are no receipts in {options.place}")
    if options.action == "verify":
        _verify(place, options)
        return
    lines: Iterable[Line] = _lines(place)
    if options.action == "tail":
        lines = deque(lines, maxlen=max(options.n, 0))
    elif options.action == "show":
        lines = (line for line in lines if _fits(line.receipt, options))
    elif not options.csv and not options.tsv:
        options.json = True
    _print(lines, options)
    sys.stdout.flush()


# -- verify


def _verify(place: ReceiptPlace, options: argparse.Namespace) -> None:
    check: CheckSignature | None = None
    if options.key is not None:
        check = checker(public_key(options.key))
    found = verify_place(place, check=check)
    ok = all(each.ok for each in found.values())
    if options.json:
        files = [{"file": name, "ok": each.ok, **msgspec.to_builtins(each)} for name, each in found.items()]
        _say(_write({"ok": ok, "files": files}).decode())
    else:
        for name, each in found.items():
            _say(_told(name, each))
    if not ok:
        raise SystemExit(1)


def _told(name: str, found: Verification) -> str:
    """Return in one line what is right or wrong with a file."""
    if not found.ok:
        return f"{name}:{found.line}: {escaped(found.problem)}"
    told = f"{name}: {found.records} records are right"
    if found.seals:
        told += f", {found.seals} seals, the last over record {found.sealed}"
    if found.unchecked_seals:
        told += f", {found.unchecked_seals} seals were not checked: give --key"
    if found.lost:
        told += f", {found.lost} were lost before they could be written"
    return told


# -- records


def _lines(place: ReceiptPlace) -> Iterator[Line]:
    for name in place.names():
        for number, written in enumerate(place.lines(name), 1):
            try:
                yield Line(name, written.removesuffix(b"\n"), _read(written))
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as reason:
                raise SetupError(f"{name}:{number} cannot be read: {escaped(str(reason))}") from None


def _fits(receipt: Receipt, options: argparse.Namespace) -> bool:
    cells = _cells(Line("", b"", receipt))
    for name in ("kind", "method", "target", "outcome", "subject", "session", "trace"):
        wanted = getattr(options, name)
        if wanted is not None and cells[name] != wanted:
            return False
    return True


def _print(lines: Iterable[Line], options: argparse.Namespace) -> None:
    if options.json:
        for line in lines:
            _say(line.written.decode())
    elif options.csv or options.tsv:
        table = csv.writer(sys.stdout, delimiter="\t" if options.tsv else ",", lineterminator="\n")
        table.writerow(COLUMNS)
        for line in lines:
            cells = _cells(line)
            table.writerow([_harmless(cells[name]) for name in COLUMNS])
    else:
        for line in lines:
            _say(_shown(line))


def _cells(line: Line) -> dict[str, Any]:
    """Return what stands in each column; None where nothing does."""
    receipt = line.receipt
    found: dict[str, Any] = dict.fromkeys(COLUMNS)
    found["file"] = line.file
    for name in receipt.__struct_fields__:
        value = getattr(receipt, name)
        if name in found and value is not UNSET:
            found[name] = value
    if receipt.who is not UNSET:
        found["issuer"] = receipt.who.iss
        found["subject"] = receipt.who.sub
        found["client"] = receipt.who.client
    if receipt.peer is not UNSET:
        found["peer"] = receipt.peer.name
        found["peer_version"] = receipt.peer.version
    if receipt.bytes is not UNSET:
        found["args_bytes"], found["result_bytes"] = receipt.bytes
    return found


def _harmless(value: object) -> object:
    """Return a cell that no spreadsheet runs and no terminal obeys."""
    if not isinstance(value, str):
        return value
    text = escaped(value)
    if text.startswith(FORMULAS):
        return f"'{text}"
    return text


def _shown(line: Line) -> str:
    """Return a record in one line for people."""
    cells = _cells(line)
    parts = [cells["t"], cells["n"], cells["kind"]]
    parts += [cells["subject"] or cells["peer"] or "-", cells["method"] or "", cells["target"] or ""]
    if cells["outcome"] is not None:
        parts.append(cells["outcome"])
    if cells["code"] is not None:
        parts.append(cells["code"])
    if cells["ms"] is not None:
        parts.append(f"{cells['ms']:g} ms")
    return "  ".join(escaped(str(part)) for part in parts if part != "")


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
