"""What an install brings along: the list of parts, the licences, the weights in the documents."""

from __future__ import annotations

import re

import pytest

import licences
from dist import MOST_PACKAGES
from parts import parts_of
from sbom import sbom

ROW = re.compile(r"^\| ([\w.-]+) \| (.+) \|$", re.MULTILINE)


def test_an_install_has_few_packages() -> None:
    assert len(parts_of("ferrule")) <= MOST_PACKAGES


def test_the_page_of_licences_names_every_package_with_the_licence_it_has() -> None:
    written = dict(ROW.findall(licences.PAGE.read_text(encoding="utf-8")))
    everything = parts_of("ferrule", licences.extras())
    # A package that only another Python or another system needs is on the page and may be missing here.
    wrong = {name: part.licence for name, part in everything.items() if written.get(name) != part.licence}
    wrong.pop("ferrule")
    assert wrong == {}, "run `python release/licences.py`, and read the difference"


def test_no_licence_asks_more_than_to_keep_a_notice() -> None:
    free = {"MIT", "MIT-0", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "PSF-2.0", "ISC", "0BSD"}
    for name, part in parts_of("ferrule", licences.extras()).items():
        assert {*re.split(r" OR | AND ", part.licence)} <= free, name


def test_the_bill_of_materials_has_every_part_and_who_needs_it() -> None:
    parts = parts_of("ferrule")
    document = sbom("ferrule", parts)
    assert (document["bomFormat"], document["specVersion"]) == ("CycloneDX", "1.6")
    named = [each["name"] for each in document["components"]]
    assert sorted([*named, "ferrule"]) == sorted(parts)
    references = {each["bom-ref"] for each in [*document["components"], document["metadata"]["component"]]}
    assert {each["ref"] for each in document["dependencies"]} == references
    assert {need for each in document["dependencies"] for need in each["dependsOn"]} < references
    cffi = f"pkg:pypi/cffi@{parts['cffi'].version}"
    assert [each["ref"].partition("@")[0] for each in document["dependencies"] if cffi in each["dependsOn"]] == [
        "pkg:pypi/cryptography"
    ]


def test_a_package_that_is_not_installed_is_an_error() -> None:
    with pytest.raises(KeyError):
        parts_of("no-such-package")
