"""What a witness policy must be for a broker to start."""


import pytest
from nacl.signing import SigningKey

from processes import ORIGIN, Broker
from test_startup_errors import start_fails
from witness import LOG_KEY, ML_DSA_KEY, vkey
from watched import Watched


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


BAD_POLICIES = {
    "empty": ("", "quorum"),
    "no witness": ("quorum none\n", "names no witness"),
    "no url": ("witness a {vkey}\nquorum a\n", "no URL"),
    "cleartext": ("witness a {vkey} http://witness.example/\nquorum a\n", "https://"),
    "cleartext that looks like loopback": ("witness a {vkey} http://127.0.0.1.example/\nquorum a\n", "https://"),
    "another scheme": ("witness a {vkey} ftp://127.0.0.1/\nquorum a\n", "https://"),
    "a user name": ("witness a {vkey} https://u@witness.example/\nquorum a\n", "@"),
    "another log": ("log {stranger}\nwitness a {vkey} https://witness.example\nquorum a\n", "other logs"),
    "ML-DSA": ("witness a {mldsa} https://witness.example\nquorum a\n", "line 1: keys of type 0x06 (ML-DSA-44) are not supported"),
    "the log's key": ("witness a {log} https://witness.example\nquorum a\n", "line 1: the key has type 0x01"),
    "not defined": ("witness a {vkey} https://witness.example\nquorum b\n", "line 2: b is not defined"),
    "cut short": ("witness a {vkey} https://witness.example\nquorum a", "newline"),
    "two lines": ("witness a {vkey} https://witness.example\nwitness b {vkey} https://w.example\nquorum a\n", "line 2"),
    "carriage returns": ("witness a {vkey} https://witness.example\r\nquorum a\r\n", "line 1"),
}


@pytest.mark.parametrize("kind", BAD_POLICIES)
def test_bad_policy(asked, tmp_path, kind):
    text, word = BAD_POLICIES[kind]
    public = bytes(SigningKey.generate().verify_key)
    path = tmp_path / "witnesses"
    path.write_text(text.format(
        vkey=asked.witnesses[0].vkey, log=asked.state.vkey, stranger=vkey(ORIGIN, LOG_KEY, public),
        mldsa=vkey("witness.test/pq", ML_DSA_KEY, bytes(1312))), newline="")
    before = sorted(entry.name for entry in asked.state.folder.iterdir())
    start_fails(Broker(asked.state, witness_policy=path), word, path)
    assert sorted(entry.name for entry in asked.state.folder.iterdir()) == before, "something was made"
