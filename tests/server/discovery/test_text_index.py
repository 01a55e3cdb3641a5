"""Which texts fit a few words."""

from __future__ import annotations

import time

from ferrule.server.discovery.text_index import MAX_WORDS, TextIndex, words_of

TEXTS = {
    "send_mail": ["send_mail", "Send a message to a person by e-mail."],
    "readFile": ["readFile", "Read a file of the disk."],
    "list_files": ["list_files", "List the files of a folder on the disk, with their sizes and dates and owners."],
    "weather": ["weather", "Tell the weather of a city. Über Köln regnet es."],
}


def test_words_are_those_of_names_too() -> None:
    assert words_of("readFile list_files HTTPServer2 class") == [
        *("read", "file", "list", "file", "http", "server", "2", "class")
    ]


def test_the_best_comes_first_and_what_has_no_word_not_at_all() -> None:
    index = TextIndex(TEXTS)
    assert index.search("read a file")[:2] == ["readFile", "list_files"]
    assert index.search("files") == ["readFile", "list_files"]
    assert index.search("mails") == ["send_mail"]
    assert index.search("Köln") == ["weather"]
    assert index.search("zebra !?") == []
    assert TextIndex({}).search("x") == []


def test_a_long_query_over_a_large_catalogue_takes_bounded_work() -> None:
    index = TextIndex({f"tool_{number}": [f"tool_{number}", "does the same as the others"] for number in range(5000)})
    started = time.process_time()
    found = index.search(" ".join(["tool", "does", "same", "others"] * 10_000))
    assert len(found) == 5000
    assert index.search("4711")[0] == "tool_4711"
    assert time.process_time() - started < 1.0
    others = " ".join("x" * length for length in range(1, MAX_WORDS + 1))
    assert index.search(f"{others} does") == []
