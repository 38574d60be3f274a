"""The table of bad HTTP/2 connections and requests against the broker: what becomes of each, and that nothing came of what was refused."""

import pytest

from bad_frames import FRAME_ROWS
from bad_requests import CODE
from http2_frames import FramePeer, ask
from listeners import Listeners, fresh


@pytest.fixture(scope="module")
def world():
    listeners = Listeners(["tls"])
    yield listeners
    listeners.close()


@pytest.fixture(scope="module")
def h2(world):
    return world.certificate.context("h2")


@pytest.mark.parametrize("row", FRAME_ROWS, ids=lambda row: row.name)
def test_row(world, h2, row):
    code = fresh()
    with FramePeer(world.broker("tls").port, h2) as peer:
        peer.send(row.sent.replace(CODE, code))
        assert peer.outcome(row.stream) == row.outcome, (peer.statuses, peer.bodies)
        if row.stays:
            peer.send(ask(7))
            assert peer.outcome(7) == "answer 404", "the next request on the connection was not answered"
        else:
            peer.rest()
    assert world.made("tls", code) == row.made
