"""`ferrule telemetry`: what a monitoring system needs to show a server."""

from __future__ import annotations

import argparse
import json
import sys

from ferrule.telemetry.dashboard import dashboard

WHAT = {"grafana": "a Grafana dashboard of all metrics, to import as JSON"}


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    listed = "; ".join(f"{name}: {help_text}" for name, help_text in WHAT.items())
    parser.add_argument("what", choices=sorted(WHAT), help=listed)
    parser.add_argument("--title", default="Ferrule", help="the name of the dashboard")


def execute(options: argparse.Namespace, passed_on: list[str]) -> None:
    """Print what was asked for."""
    sys.stdout.write(json.dumps(dashboard(title=options.title), indent=2) + "\n")
