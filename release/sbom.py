"""The parts of Ferrule as a CycloneDX document (a software bill of materials)."""

from __future__ import annotations

from typing import Any

from parts import Part

SPEC_VERSION = "1.6"


def sbom(root: str, parts: dict[str, Part]) -> dict[str, Any]:
    """Return the document: the package itself, all that is installed with it, and who needs whom."""
    return {
        "bomFormat": "CycloneDX",
        "specVersion": SPEC_VERSION,
        "version": 1,
        "metadata": {"component": {**_component(parts[root]), "type": "framework"}},
        "components": [_component(part) for name, part in parts.items() if name != root],
        "dependencies": [
            {"ref": _reference(part), "dependsOn": [_reference(parts[need]) for need in sorted(part.needs)]}
            for part in parts.values()
        ],
    }


def _component(part: Part) -> dict[str, Any]:
    return {
        "type": "library",
        "bom-ref": _reference(part),
        "name": part.name,
        "version": part.version,
        "purl": _reference(part),
        "licenses": [{"expression": part.licence}],
    }


def _reference(part: Part) -> str:
    return f"pkg:pypi/{part.name}@{part.version}"
