"""Limits behind a trusted proxy count for the caller that it names, in each form of an address. What names nobody raises one alarm."""

import pytest

from bad_requests import upgrade
from peers import Peer
from processes import eventually
from world import World

# Sockets of one network that have not joined (docs/reference.md).
SHARE = 256


def opened(port, caller, header=b"X-Forwarded-For"):
    """Opens a WebSocket for a caller: the connection, and the status of the answer."""
    peer = Peer(port, source="127.0.0.1")
    peer.send(upgrade().replace(b"\r\n", b"\r\n%s: %s\r\n" % (header, caller), 1))
    status = b""
    while not status.endswith(b"\r\n"):
        more = peer.socket.recv(1)
        assert more, "the connection ended"
        status += more
    return peer, int(status.split()[1])


@pytest.mark.parametrize("header, form", [
    (b"X-Forwarded-For", b"%s:4711"), (b"X-Forwarded-For", b"198.51.100.1, \"%s\""), (b"Forwarded", b"for=\"%s:4711\";proto=https")])
def test_callers_with_ports_have_shares_of_their_own(header, form):
    with World(apns=False, trusted_proxies="127.0.0.1") as world:
        peers = [opened(world.broker.port, form % b"203.0.113.9", header) for _ in range(SHARE + 1)]
        try:
            assert [status for _, status in peers] == [101] * SHARE + [429]
            peers.append(opened(world.broker.port, form % b"203.0.113.10", header))
            assert peers[-1][1] == 101
        finally:
            for peer, _ in peers:
                peer.socket.close()


@pytest.mark.background
def test_callers_without_an_address_raise_one_alarm():
    said = "a trusted proxy forwards callers without a readable address"
    with World(apns=False, trusted_proxies="127.0.0.1") as world:
        before = world.broker.metric("alarms_total")
        for caller in (b"198.51.100.7, unknown", b"_hidden", b"garbage"):
            peer, status = opened(world.broker.port, caller)
            assert status == 101
            peer.socket.close()
        eventually(lambda: said in world.broker.printed(), 20, 0.2)
        assert world.broker.metric("alarms_total") > before
        peer, _ = opened(world.broker.port, b"unknown")
        peer.socket.close()
        printed = world.broker.printed()
        assert printed.count(said) == 1 and "198.51" not in printed and "_hidden" not in printed and "garbage" not in printed, printed
