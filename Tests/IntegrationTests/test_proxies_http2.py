"""HTTP/2 in front of nginx and HAProxy, HTTP/1.1 behind them: the table of frames, and requests that a careless proxy would split."""

import tempfile
import time
from contextlib import suppress
from pathlib import Path

import pytest

from bad_frames import BODIES, FIELDS, FRAMES
from bad_requests import CODE, HIDDEN
from certificates import Certificate
from http2_frames import FramePeer
from listeners import fresh
from smuggling_frames import HIDDEN_IN_FRAMES
from test_proxies import KINDS, WAYS, behind, honest

pytestmark = [pytest.mark.background, pytest.mark.campaign]
SENT = {row.name: row.sent for row in FRAMES + FIELDS + BODIES} | HIDDEN_IN_FRAMES


def play(proxy, context, sent):
    """Sends it, looks at stream 1 for a moment, and lets the honest client ask. Returns how many rooms were made."""
    code, hidden = fresh(), fresh()
    with FramePeer(proxy.secure_port, context, timeout=0.3) as peer:
        peer.send(sent.replace(CODE, code).replace(HIDDEN, hidden))
        with suppress(TimeoutError):
            peer.outcome(1)
        opened = honest(proxy, code, hidden)
        peer.socket.settimeout(10 if opened else 0.01)
        with suppress(TimeoutError):
            peer.outcome(1)
        told = [status for status in peer.statuses.values() if status == 201]
    assert hidden not in opened, "smuggled: the hidden create came to life"
    # Debian's HAProxy 2.6.12-1+deb12u4 hands on a padded DATA frame and then ends the connection for it (PROTOCOL_ERROR), with or without the answer.
    assert len(told) == (code in opened) or (peer.error and not told), f"created: {code in opened}, answered: {peer.statuses}, {peer.error}"
    return code in opened


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", KINDS)
def test_no_frames_are_smuggled_past_a_proxy(kind, way):
    with tempfile.TemporaryDirectory() as folder:
        certificate = Certificate(Path(folder))
        with behind(kind, way, certificate=certificate) as (world, proxy):
            context, faults, told, begun = certificate.context("h2"), {}, 0, time.monotonic()
            for name, sent in SENT.items():
                try:
                    told += play(proxy, context, sent) + 1
                except Exception as fault:
                    faults[name] = repr(fault)[:500]
            print(f"{kind}, {way}: {len(SENT)} rows, {told - len(SENT)} creates served, {time.monotonic() - begun:.1f} s")
            assert not faults, "\n".join(f"{name}: {fault}" for name, fault in faults.items())
            with world.state.database() as database:
                assert database.execute("SELECT count(*) FROM room").fetchone()[0] == told
