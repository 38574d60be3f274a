"""The tests' own witness: it is a measure only if it is strict."""

import base64
import http.client
import threading

import pytest

import ledger
from processes import ORIGIN, State
from witness import Witness, cosigners
from watched import head

pytestmark = pytest.mark.campaign


@pytest.fixture
def judge(state, tmp_path):
    with Witness(tmp_path / "witness", logs=[state.vkey]) as witness:
        yield witness


def ask(witness, body, path="/prefix/add-checkpoint"):
    connection = http.client.HTTPConnection("127.0.0.1", witness.port, timeout=5)
    connection.request("POST", path, body)
    answer = connection.getresponse()
    return answer.status, answer.getheader("Content-Type"), answer.read()


def leaves(count):
    return [ledger.leaf_hash(b"leaf-%d" % number) for number in range(count)]


def subproof(old, hashes, whole=True):
    if old == len(hashes):
        return [] if whole else [ledger.root_of(hashes)]
    split = 1 << (len(hashes) - 1).bit_length() - 1
    if old <= split:
        return subproof(old, hashes[:split], whole) + [ledger.root_of(hashes[split:])]
    return subproof(old - split, hashes[split:], False) + [ledger.root_of(hashes[:split])]


def request(state, old, hashes, proof=None):
    proof = (subproof(old, hashes) if 0 < old < len(hashes) else []) if proof is None else proof
    lines = "".join(base64.b64encode(node).decode() + "\n" for node in proof)
    return f"old {old}\n{lines}\n{head(state, len(hashes), ledger.root_of(hashes))}".encode()


def test_the_witness_cosigns_continuing_heads(state, judge):
    known = 0
    for size in (0, 1, 1, 2, 3, 7, 8, 8, 100):
        status, _, body = ask(judge, request(state, known, leaves(size)))
        assert status == 200
        note = head(state, size, ledger.root_of(leaves(size))).encode()
        assert cosigners(note + body, [judge]) == [judge]
        known = size
        assert judge.latest(ORIGIN)[0] == size, "answered before it persisted"


def test_the_witness_refuses(state, judge):
    other = State()
    try:
        good = request(state, 0, leaves(5))
        for body in (b"", good[4:], good.replace(b"old 0", b"old 00"), good.replace(b"old 0", b"old -1"), good[:-1],
                     good.replace(b"\n\n", b"\n", 1), b"old 0\n" + b"AAAA\n" * 64 + good[6:],
                     request(state, 6, leaves(5), [])):
            assert ask(judge, body)[0] == 400, body
        assert ask(judge, good, "/prefix/other")[0] == 404
        assert ask(judge, good.replace(ORIGIN.encode(), b"unknown.test/log"))[0] == 404
        assert ask(judge, request(other, 0, leaves(5)))[0] == 403
        assert ask(judge, request(state, 3, leaves(5)))[:2] == (409, "text/x.tlog.size")
        assert judge.latest(ORIGIN) == (0, None)
        assert ask(judge, good)[0] == 200
        rollback = ask(judge, request(state, 0, leaves(3)))
        assert rollback == (409, "text/x.tlog.size", b"5\n")
        forked = leaves(4) + [b"\0" * 32]
        assert ask(judge, request(state, 5, forked))[0] == 409, "a fork of the same size"
        assert ask(judge, request(state, 5, forked + leaves(3)))[0] == 422, "a longer fork"
        right = subproof(5, leaves(9))
        for wrong in ([], right[:-1], right[1:], right + right[:1], right[::-1], [b"\1" * 32] + right[1:]):
            assert ask(judge, request(state, 5, leaves(9), wrong))[0] == 422
        assert judge.latest(ORIGIN)[0] == 5
        assert ask(judge, request(state, 5, leaves(9)))[0] == 200
    finally:
        other.remove()


def test_the_witness_refuses_one_of_two_at_once(state, judge):
    """Two continuations of one head at the same time: one is cosigned, the other is stale."""
    assert ask(judge, request(state, 0, leaves(4)))[0] == 200
    forks = [leaves(4) + [bytes([number]) * 32] * (number + 1) for number in range(6)]
    answers = []
    threads = [threading.Thread(target=lambda fork=fork: answers.append(ask(judge, request(state, 4, fork))[0])) for fork in forks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers) == [200] + [409] * 5
