"""More connections than descriptors: stored rooms and the log go on. RequestTests and StreamTests have the answers to the surplus."""

from contextlib import ExitStack

import pytest

from bad_requests import ASK, BODY, CODE, request
from ledger import read
from listeners import accept, fresh
from mayfly import new_token
from peers import Closed, Peer
from processes import Broker, eventually, http_status

pytestmark = pytest.mark.campaign

DESCRIPTORS = 400


def test_surplus_connections_that_stay_open(state, processes):
    """Silent connections, and those kept open after a 503, can't use up the descriptors that storing needs."""
    broker = Broker(state)
    broker.prefix = ("prlimit", f"--nofile={DESCRIPTORS}:{DESCRIPTORS}")
    processes.append(broker)
    broker.start()
    with ExitStack() as stack:
        first = stack.enter_context(Peer(broker.port))
        for _ in range(DESCRIPTORS + 100):
            stack.enter_context(Peer(broker.port))
        code = fresh()
        first.send(request(body=BODY[:-1] + b',"client1_token":"%s"}' % new_token().encode()).replace(CODE, code))
        assert first.answer().status == 201
        first.send(accept(code))
        assert first.answer().status == 200
        assert http_status(f"http://127.0.0.1:{broker.operator_port}/readyz") == 200
        eventually(lambda: any(entry["op"] == "token.sealed" for entry in read(state).entries), 10, what="the log going on")
    eventually(lambda: answered(broker.port), 10, what="an answer after they left")


def answered(port):
    with Peer(port) as peer:
        peer.send(ASK)
        try:
            return peer.answer().status == 404
        except Closed:
            return False
