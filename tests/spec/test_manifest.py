"""The manifest is sound, the tests name its ids clearly, and what is built is proven or waived."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections import Counter
from pathlib import Path
from textwrap import dedent
from types import ModuleType

import pytest

HERE = Path(__file__).resolve().parent
PROJECT = HERE.parents[1]
SOURCES = {
    "spec": (PROJECT.parent / "shared" / "spec" / "requirements.md", r"^- \*\*([A-Z]+-\d+)\*\*"),
    "seed": (PROJECT.parent / "shared" / "seeds" / "features.md", r"^\| ([A-Z]+-\d+) \|"),
    "catalogue": (PROJECT.parent / "shared" / "reliability" / "catalogue.md", r"^\| ([A-Z]+-\d+) \|"),
}
LEVELS = {"must", "should", "may", "schema", "interop"}
SIDES = {"server", "client", "both", "proxy", "authorization-server"}
OUR_AREAS = {"BUD", "ERRA"}
"""The areas that were added here and have no ids in a source."""
LONGEST_LINE = 140


def load_coverage_map() -> ModuleType:
    """Import the tool beside this file, which belongs to no package."""
    spec = importlib.util.spec_from_file_location("coverage_map", HERE / "coverage_map.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


coverage_map = load_coverage_map()
MANIFEST = coverage_map.load_manifest()


@pytest.fixture(scope="module")
def evidence() -> coverage_map.Evidence:
    """What all tests claim: every file of them is read, once."""
    return coverage_map.collect_evidence(MANIFEST)


def read(source: str, place: str = "tests/test_sample.py") -> coverage_map.Evidence:
    """Return what a small test file claims."""
    evidence = coverage_map.Evidence()
    coverage_map.read_file(MANIFEST, evidence, place, dedent(source))
    return evidence


def test_every_id_stands_once_under_its_area():
    for name in coverage_map.MANIFEST_FILES:
        rows = list(coverage_map.read_rows(HERE / name))
        twice = [id_ for id_, times in Counter(row.id for row in rows).items() if times > 1]
        assert not twice
    for name in coverage_map.MANIFEST_FILES:
        document = coverage_map.tomllib.loads((HERE / name).read_text(encoding="utf-8"))
        document.pop("namespace")
        strays = [id_ for area, rows in document.items() for id_ in rows if not re.fullmatch(rf"{area}-\d+", id_)]
        assert not strays


def test_every_line_is_one_short_sentence():
    for row in MANIFEST.requirements.values():
        assert 0 < len(row.line) <= LONGEST_LINE, row.key
        assert "\n" not in row.line, row.key
        assert row.line.endswith("."), row.key


def test_every_requirement_belongs_to_a_known_piece():
    unknown = [row.key for row in MANIFEST.requirements.values() if row.issue not in coverage_map.PIECES]
    assert not unknown


def test_protocol_requirements_say_level_side_and_revisions():
    for row in MANIFEST.requirements.values():
        if row.namespace != "spec":
            assert row.details == {}, row.key
            continue
        assert row.details["level"] in LEVELS, row.key
        assert row.details["side"] in SIDES, row.key
        assert re.fullmatch(r"R[1-5](-R[2-5])?", row.details["revisions"]), row.key


def test_waivers_are_for_what_is_built_and_give_a_reason():
    for key, waiver in MANIFEST.waivers.items():
        assert MANIFEST.requirements[key].issue in coverage_map.DONE, key
        assert waiver.reason.endswith("."), key


def test_nothing_is_waived_that_a_test_proves(evidence: coverage_map.Evidence):
    assert [key for key in MANIFEST.waivers if evidence.is_claimed(key)] == []


def test_a_waiver_points_only_to_requirements_that_tests_must_prove():
    for key, waiver in MANIFEST.waivers.items():
        for seen in waiver.see:
            assert MANIFEST.requirements[seen].issue in coverage_map.DONE, key
            assert seen not in MANIFEST.waivers, key


@pytest.mark.parametrize("namespace", SOURCES)
def test_the_manifest_has_exactly_the_ids_of_its_sources(namespace: str):
    path, pattern = SOURCES[namespace]
    if not path.exists():
        pytest.skip("the sources of the manifest are not beside the project")
    wanted = set(re.findall(pattern, path.read_text(encoding="utf-8"), re.MULTILINE))
    rows = [row for row in MANIFEST.requirements.values() if row.namespace == namespace]
    present = {row.id for row in rows if row.id.partition("-")[0] not in OUR_AREAS}
    assert present == wanted


def test_no_mention_in_the_tests_is_ambiguous(evidence: coverage_map.Evidence):
    assert [str(problem) for problem in evidence.problems if problem.ambiguous] == []


def test_every_id_mentioned_in_the_tests_is_in_the_manifest(evidence: coverage_map.Evidence):
    assert [str(problem) for problem in evidence.problems if not problem.ambiguous] == []


@pytest.mark.parametrize("piece", coverage_map.DONE)
def test_every_requirement_of_what_is_built_is_proven_or_waived(piece: str, evidence: coverage_map.Evidence):
    missing = coverage_map.missing(MANIFEST, evidence, piece)
    assert not missing, f"{len(missing)} of {piece} have no test: {', '.join(row.key for row in missing)}"


def test_every_test_that_is_scaled_down_is_run_whole_by_a_long_target(evidence: coverage_map.Evidence):
    recipes = (PROJECT / "Makefile").read_text(encoding="utf-8").splitlines()
    long_runs = [recipe for recipe in recipes if any(f"{scale}=" in recipe for scale in coverage_map.SCALES)]
    places = [word for recipe in long_runs for word in recipe.split() if word.startswith("tests/")]
    places += [word.removesuffix("run.py") for recipe in recipes for word in recipe.split() if word.endswith("/run.py")]
    assert len(places) > 3
    for key, tests in evidence.long.items():
        for test in tests:
            assert any(test.startswith(place) for place in places), f"{test} claims {key}, and no long target runs it"


SCALED = {
    "a name of pace": "from pace import LONG\n\ndef test_it():\n    '''{claim}'''\n    assert 100 if LONG else 10",
    "a bound of pace": "from pace import prompt\n\ndef test_it():\n    '''{claim}'''\n    assert 1 < prompt(1)",
    "the environment": "def test_it():\n    '''{claim}'''\n    assert os.environ.get('FERRULE_LONG')",
    "a constant": "MANY = 100 if os.environ.get('FERRULE_SOAK') else 1\n\ndef test_it():\n    '''{claim}'''\n    MANY",
    "a helper": (
        "from pace import LONG\n\ndef rounds():\n    return 100 if LONG else 1\n\n"
        "def test_it():\n    '''{claim}'''\n    rounds()"
    ),
    "a decorator": (
        "from pace import LONG\n\n@pytest.mark.skipif(not LONG, reason='slow')\ndef test_it():\n    '''{claim}'''"
    ),
    "a mark of the module": (
        "from pace import LONG\n\npytestmark = pytest.mark.skipif(not LONG, reason='slow')\n\n"
        "def test_it():\n    '''{claim}'''"
    ),
}


@pytest.mark.parametrize("source", SCALED.values(), ids=SCALED)
def test_a_test_that_is_scaled_down_proves_a_number_in_the_long_run_only(source: str):
    evidence = read(source.format(claim="SOK-03"))
    assert evidence.long == {"catalogue:SOK-03": {"tests/test_sample.py::test_it"}}
    assert coverage_map.status_of("catalogue:SOK-03", MANIFEST, evidence) == "long"


def test_a_test_that_is_scaled_down_proves_what_has_no_number():
    evidence = read(SCALED["a bound of pace"].format(claim="HND-02"))
    assert coverage_map.status_of("catalogue:HND-02", MANIFEST, evidence) == "proven"


def test_a_number_that_one_test_scales_down_is_not_proven_by_another_unless_it_says_so():
    scaled, other = SCALED["a constant"].format(claim="SOK-03"), "\n\ndef test_other():\n    '''{}SOK-03'''"
    silent, loud = read(scaled + other.format("")), read(scaled + other.format("always:"))
    assert coverage_map.status_of("catalogue:SOK-03", MANIFEST, silent) == "long"
    assert coverage_map.status_of("catalogue:SOK-03", MANIFEST, loud) == "proven"


def test_a_claim_may_say_itself_that_it_is_for_the_long_run():
    evidence = read("def test_it(): '''long:catalogue:SOK-03'''")
    assert coverage_map.status_of("catalogue:SOK-03", MANIFEST, evidence) == "long"


def test_a_fixture_does_not_scale_the_tests_that_use_it():
    evidence = read("""
        @pytest.fixture
        def patience():
            return 60 if os.environ.get("FERRULE_LONG") else 10

        def test_it(patience):
            '''SOK-03'''
            assert patience
        """)
    assert coverage_map.status_of("catalogue:SOK-03", MANIFEST, evidence) == "proven"


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("At most 64 at a time.", True),
        ("In 2.5 s.", True),
        ("Is -32700 in UTF-8.", False),
        ("As of 2025-06-18.", False),
    ],
)
def test_codes_and_revisions_are_no_numbers_that_could_be_scaled(line: str, found: bool):
    assert coverage_map.Requirement("spec", "X-1", line, "core", {}).has_number == found


def test_a_test_claims_the_ids_in_its_body_docstring_decorators_and_comment_above():
    evidence = read('''
        # RPC-1
        @pytest.mark.parametrize("case", ["RPC-2"])
        def test_one(case):
            """Shows RPC-3."""
            assert case  # RPC-4
        ''')
    owner = {"tests/test_sample.py::test_one"}
    assert evidence.claims == {f"spec:RPC-{number}": owner for number in (1, 2, 3, 4)}


def test_a_test_claims_the_ids_of_a_table_its_decorators_name():
    evidence = read("""
        CASES = [
            ("x", "RPC-5"),
        ]
        OTHER = ["RPC-6"]

        @pytest.mark.parametrize(("text", "rule"), CASES)
        async def test_each(text, rule): ...
        """)
    assert evidence.claims == {"spec:RPC-5": {"tests/test_sample.py::test_each"}}
    assert evidence.outside == ["tests/test_sample.py:5: RPC-6"]


def test_a_test_class_claims_the_ids_outside_its_tests():
    evidence = read('''
        class TestPing:
            """Shows PING-1."""

            def test_it(self): ...  # PING-01

        class TestNothing:
            """Has no test for PING-2."""
        ''')
    assert evidence.claims == {
        "spec:PING-1": {"tests/test_sample.py::TestPing"},
        "seed:PING-01": {"tests/test_sample.py::TestPing::test_it"},
    }
    assert len(evidence.outside) == 1


def test_a_module_claims_only_the_ids_of_its_proves_paragraph():
    evidence = read('''\
        """About ERR-1.

        Proves: ERR-2,
        ERR-3.

        Not ERR-4.
        """

        def test_codes(): ...
        ''')
    assert evidence.claims == {key: {"tests/test_sample.py"} for key in ("spec:ERR-2", "spec:ERR-3")}
    assert len(evidence.outside) == 2


def test_a_test_name_claims_the_catalogue_ids_it_begins_with():
    evidence = read("""
        def test_frm_01_frm_02_hostile_text(): ...
        def test_root_01_is_no_catalogue_id(): ...
        """)
    owner = {"tests/test_sample.py::test_frm_01_frm_02_hostile_text"}
    assert evidence.claims == {"catalogue:FRM-01": owner, "catalogue:FRM-02": owner}
    assert evidence.problems == []


def test_a_test_name_with_an_unknown_catalogue_id_is_a_problem():
    evidence = read("def test_std_99_nothing(): ...")
    assert [problem.place for problem in evidence.problems] == ["tests/test_sample.py:1"]


@pytest.mark.parametrize("mark", ["skip", "skip(reason='later')", "xfail", "xfail(strict=True)"])
def test_a_test_that_never_counts_proves_nothing(mark: str):
    evidence = read(f"""
        @pytest.mark.{mark}
        def test_later():
            '''RPC-1'''
        """)
    assert evidence.claims == {}


@pytest.mark.parametrize("place", ["tests/helpers.py", "tests/conftest.py"])
def test_a_file_that_pytest_does_not_collect_proves_nothing(place: str):
    assert read("def test_like(): '''RPC-1'''", place).claims == {}


def test_a_plain_mention_of_a_doubled_id_is_a_problem_that_names_file_and_line():
    evidence = read("""
        def test_it():
            '''Shows TOOL-12.'''
        """)
    (problem,) = evidence.problems
    assert problem.ambiguous
    assert str(problem) == "tests/test_sample.py:3: TOOL-12 is ambiguous: write spec:TOOL-12 or seed:TOOL-12"


def test_padding_and_tags_tell_namespaces_apart():
    evidence = read("""
        def test_it():
            '''Shows TOOL-1, TOOL-01, RES-1, RES-01, spec:TOOL-12 and seed:TOOL-12, in UTF-8.'''
        """)
    assert set(evidence.claims) == {
        "spec:TOOL-1",
        "seed:TOOL-01",
        "spec:RES-1",
        "catalogue:RES-01",
        "spec:TOOL-12",
        "seed:TOOL-12",
    }
    assert evidence.problems == []


def test_an_unknown_id_of_a_known_area_is_a_problem():
    (problem,) = read("# RPC-99").problems
    assert str(problem) == "tests/test_sample.py:1: RPC-99 is not in the manifest"


def test_a_file_that_does_not_parse_is_a_problem():
    (problem,) = read("def test_(:").problems
    assert "does not parse" in problem.text


def test_a_waiver_that_repeats_others_holds_only_while_those_are_proven():
    unproven = coverage_map.Evidence()
    proven = coverage_map.Evidence(claims={"seed:BATC-04": {"tests/test_sample.py::test_it"}})
    assert coverage_map.status_of("seed:CANC-05", MANIFEST, unproven) == "missing"
    assert coverage_map.status_of("seed:CANC-05", MANIFEST, proven) == "waived"
    assert coverage_map.status_of("spec:META-4", MANIFEST, unproven) == "waived"


def test_the_command_line_counts_every_requirement_once(capsys: pytest.CaptureFixture[str]):
    coverage_map.main(["--json"])
    document = coverage_map.json.loads(capsys.readouterr().out)
    assert set(document["requirements"]) == set(MANIFEST.requirements)
    for counts in document["counts"].values():
        assert sum(counts[status] for status in coverage_map.STATUSES) == counts["all"]


def test_the_command_line_shows_only_what_is_missing_of_a_piece(capsys: pytest.CaptureFixture[str]):
    coverage_map.main(["--json", "--missing", "--piece", "http"])
    document = coverage_map.json.loads(capsys.readouterr().out)
    assert {row["issue"] for row in document["requirements"].values()} <= {"http"}
    assert len(document["requirements"]) == document["counts"]["http"]["missing"]
