"""The texts of parameters, from docstrings of every style."""

import pytest

from ferrule.server.functions.docstrings import split_docstring

GOOGLE = """Search the archive.

    It looks everywhere.

    Args:
        query (str, optional): What to look for:
            any words.
        limit: How many.
        *rest: The rest.

    Returns:
        The hits.

    Examples:
        search("x")
    """
NUMPY = """Search the archive.

    It looks everywhere.

    Parameters
    ----------
    query : str, optional
        What to look for:
        any words.
    limit : int
        How many.

    Returns
    -------
    list
        The hits.
    """
SPHINX = """Search the archive.

    It looks everywhere.

    :param str query: What to look for:
        any words.
    :param limit: How many.
    :type limit: int
    :returns: The hits.
    :raises ValueError: never
    """


@pytest.mark.parametrize("docstring", [GOOGLE, NUMPY, SPHINX], ids=["google", "numpy", "sphinx"])
def test_every_docstring_style_gives_prose_and_parameter_texts(docstring: str) -> None:
    prose, texts = split_docstring(docstring)
    assert prose is not None
    assert prose.startswith("Search the archive.\n\nIt looks everywhere.")
    assert "limit" not in prose
    assert "The hits" not in prose
    assert (texts["query"], texts["limit"]) == ("What to look for: any words.", "How many.")


def test_what_is_no_known_section_stays_in_the_prose() -> None:
    prose, texts = split_docstring("Note: this is odd.\n\nExample:\n    f(1)\n\nUse at 10:30.")
    assert prose == "Note: this is odd.\n\nExample:\n    f(1)\n\nUse at 10:30."
    assert texts == {}
    assert split_docstring(None) == (None, {})
    assert split_docstring("\n    Args:\n        a: only this\n    ") == (None, {"a": "only this"})


def test_two_numpy_parameters_may_share_a_text() -> None:
    assert split_docstring("Parameters\n----------\nx, y : int\n    A place.")[1] == {"x": "A place.", "y": "A place."}


@pytest.mark.parametrize(
    ("docstring", "texts"),
    [
        ("Do.\n\nArgs:\n    a (dict[str, int]): one\n    b (f(x), optional): two: it", {"a": "one", "b": "two: it"}),
        ("Do.\nArgs:\n  a: one\n    goes on\n\n    and on\n  b: two\nMore.", {"a": "one goes on and on", "b": "two"}),
        ("Do.\n\nArgs:\n    a: one of:\n        - x: the x\n    b: two", {"a": "one of: - x: the x", "b": "two"}),
        ("Do.\n\nArgs:\n\ta: one\n\tb: two", {"a": "one", "b": "two"}),
        ("Do.\r\n\r\nArgs:\r\n    a: one\r\n    b: two\r\n", {"a": "one", "b": "two"}),
        ("Do.\n\nArgs:\n    a - one\n    b (int) - two", {"a": "one", "b": "two"}),
        ("Do.\n\nPARAMETERS:\n    a: one\n\nRaises:\n    KeyError: no", {"a": "one"}),
        ("Do.\n\nParameters\n----------\na\n    one\nb : {'x', 'y'}, default 'x'\n    two", {"a": "one", "b": "two"}),
        ("Do.\n\nOther Parameters\n----------------\n**c : int\n    three", {"c": "three"}),
        ("Do.\n\n:param a: see http://x.y: ok\n:param dict[str, int] b: two", {"a": "see http://x.y: ok", "b": "two"}),
        ("Do.\n\n:keyword d: four\n  goes on\n:rtype: int", {"d": "four goes on"}),
    ],
)
def test_odd_docstrings_are_read_too(docstring: str, texts: dict[str, str]) -> None:
    prose, found = split_docstring(docstring)
    assert found == texts
    assert prose is not None
    assert prose.split("\n")[0].strip() == "Do."
    assert "one" not in prose


def test_what_an_example_shows_is_no_section() -> None:
    shown = "Do.\n\nExample::\n\n    Args:\n        a: not this"
    assert split_docstring(shown) == (shown, {})
