"""Clients that send requests without end, and know for each whether it left before the broker announced its close.

Such a request must be answered. Later ones may be lost (RFC 9112 section 9.6, RFC 9113 section 6.8).
"""

import select
import threading
import time

from bad_requests import BODY, CODE, request
from http2_frames import POST, START, FramePeer, data, head
from listeners import fresh
from peers import Closed, Peer

CREATE = request()


class Tally:
    """Counts of a crowd of clients."""

    def __init__(self):
        self.lock, self.made, self.lost, self.statuses = threading.Lock(), [], [], {}

    def answered(self, status, code):
        with self.lock:
            self.statuses[status] = self.statuses.get(status, 0) + 1
            if status == 201:
                self.made.append(code)

    def unanswered(self, what):
        with self.lock:
            self.lost.append(what)


def has_ended(peer):
    """Whether the peer's end, or its last answer, has arrived. A careful client checks this before it sends."""
    return bool(peer.buffer) or bool(select.select([peer.socket], [], [], 0)[0])


def keep_asking(port, tls, tally, pause=0.0, kept=True):
    """HTTP/1.1: one request after the other, on one connection (`kept`) or each on its own, until nothing listens."""
    while True:
        try:
            peer = Peer(port, tls, timeout=15)
        except OSError:
            return  # The connection was refused or the handshake cut off, so nothing had been sent.
        with peer:
            while not has_ended(peer):
                code = fresh()
                sent = CREATE.replace(CODE, code)
                if not kept:
                    sent = sent.replace(b"\r\n", b"\r\nConnection: close\r\n", 1)
                try:
                    peer.send(sent)
                    answer = peer.answer()
                except (Closed, OSError) as error:
                    tally.unanswered(f"{'kept' if kept else 'fresh'}: {error!r}")
                    break
                tally.answered(answer.status, code)
                if "close" in answer.headers.get("connection", ""):
                    break
                if pause:
                    time.sleep(pause)


def keep_streaming(port, tls, tally, together=8):
    """HTTP/2: so many concurrent streams on one connection after the other, until nothing listens."""
    while True:
        try:
            peer = FramePeer(port, tls, timeout=15)
        except OSError:
            return
        with peer:
            peer.send(START)
            codes, open_streams, number = {}, set(), 1
            try:
                while not peer.goaways or open_streams:
                    if not peer.goaways and len(open_streams) < together and number < 2**20:
                        codes[number] = fresh()
                        peer.send(head(number, *POST) + data(number, BODY.replace(CODE, codes[number])))
                        open_streams.add(number)
                        number += 2
                        continue
                    told = peer.next_frame()
                    if told is None:
                        break
                    peer.note(told)
                    for stream in open_streams & set(peer.ends):
                        open_streams.remove(stream)
                        if peer.ends[stream].startswith("answer"):
                            tally.answered(peer.statuses[stream], codes[stream])
                        else:
                            tally.unanswered(f"stream {stream} of {number}: {peer.ends[stream]}, {peer.goaways}")
            except OSError as error:
                tally.unanswered(repr(error))
            for stream in open_streams:
                tally.unanswered(f"stream {stream} of {number}: nothing came, {peer.goaways}")


class Crowd:
    """Clients of a kind each, in threads, for the length of a `with`; afterwards all of them have ended by themselves."""

    def __init__(self, *clients):
        self.tally = Tally()
        self.threads = [threading.Thread(target=call, args=(*arguments[:2], self.tally, *arguments[2:]), kwargs=more, daemon=True)
                        for call, arguments, more in clients]

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self.tally

    def __exit__(self, *_):
        for thread in self.threads:
            thread.join(30)
        assert not any(thread.is_alive() for thread in self.threads), "a client waits on and on"
