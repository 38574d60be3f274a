"""Witness policies that a broker refuses."""

import pytest
from nacl.signing import SigningKey

from processes import ORIGIN, Broker
from test_startup_errors import start_fails
from watched import Watched
from witness import LOG_KEY, vkey


@pytest.fixture(scope="module")
def asked():
    watched = Watched(2)
    yield watched
    watched.__exit__()


def test_witness_failure_without_witnesses(asked):
    broker = Broker(asked.state, witness_failure="open")
    start_fails(broker, "--witness-failure", "--witness-policy", status=2)


def test_witness_failure_of_another_kind(asked):
    start_fails(Broker(asked.state, witness_policy=asked.file, witness_failure="maybe"), "open or closed", status=2)


def test_no_policy_file(asked):
    start_fails(Broker(asked.state, witness_policy="/nowhere/witnesses"), "/nowhere/witnesses", "can't be read")


# Refused by the program. `WitnessPolicyTests` has what the parser refuses.
BAD_POLICIES = [
    ("quorum none\n", "names no witness"), ("witness a {vkey}\nquorum a\n", "no URL"),
    ("witness a {vkey} http://witness.example/\nquorum a\n", "https://"),
    ("witness a {vkey} http://127.0.0.1.example/\nquorum a\n", "https://"), ("witness a {vkey} ftp://127.0.0.1/\nquorum a\n", "https://"),
    ("witness a {vkey} https://u@witness.example/\nquorum a\n", "@"),
    ("log {stranger}\nwitness a {vkey} https://witness.example\nquorum a\n", "other logs"),
    ("witness a {vkey} https://witness.example\nquorum b\n", "line 2: b is not defined")]


def test_bad_witness_policies_are_refused(asked, tmp_path):
    public = bytes(SigningKey.generate().verify_key)
    path = tmp_path / "witnesses"
    before = sorted(entry.name for entry in asked.state.folder.iterdir())
    for text, word in BAD_POLICIES:
        path.write_text(text.format(vkey=asked.witnesses[0].vkey, stranger=vkey(ORIGIN, LOG_KEY, public)))
        start_fails(Broker(asked.state, witness_policy=path), word, path)
        assert sorted(entry.name for entry in asked.state.folder.iterdir()) == before, "something was made"
