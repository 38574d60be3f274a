"""Faulty servers in APNs' place. The broker serves its callers, connects rarely, records each push by its deadline and logs what to fix. Once APNs
is back at the same address, the next push arrives."""

import json
import threading
import time
from datetime import datetime
from pathlib import Path

import pytest

import ledger
from bad_servers import BadServer, expired_certificate
from canary import Canaries
from mayfly import Client, base64url_bytes
from processes import Broker, Simulator, State, eventually, free_port, quick_rooms

pytestmark = pytest.mark.campaign

# Seconds that a room lives. The courier gives up a silent server after ten seconds, so its room has to live longer.
LIFE, LONG_LIFE = 5, 15


def policy(path):
    content = quick_rooms()
    content["limits"] |= {"roomLifeSeconds": {"min": 1, "max": 3600}, "startGraceSeconds": 0}
    content["limits"]["joinCode"]["lifeSeconds"] |= {"min": 1}
    path.write_text(json.dumps(content))
    return path


class Asking:
    """Measures how long a room's status takes, again and again."""

    def __init__(self, broker, room):
        self.took, self.ended, self.client = [], False, Client(broker.port, checked=False)
        self.thread = threading.Thread(target=self.run, args=(room,))
        self.thread.start()

    def run(self, room):
        while not self.ended:
            begin = time.monotonic()
            assert self.client.status(room.roomid).status == 200
            self.took.append(time.monotonic() - begin)
            time.sleep(0.08)

    def end(self):
        self.ended = True
        self.thread.join(15)
        self.client.close()
        return sorted(self.took)


def cpu_seconds(process):
    fields = Path(f"/proc/{process.child.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


# What the broker logs, and the reasons that a push may end with. FaultyPeerTests and TLSSessionTests have the other faults.
KINDS = {
    "http/1.1": ("does not speak HTTP/2", {"unreachable"}),
    "no answer": ("answers no push", {"unknown", "unsent", "unreachable"}),
    "ping flood": ("can't be reached", {"unknown", "unsent", "unreachable"}),
    "endless body": ("sends unrequested data", {"unknown", "unsent", "unreachable"}),
    "certificate": ("has expired", {"unreachable"}),
}
# Waits double from a quarter of a second: five connections in five seconds.
MOST_CONNECTIONS, MOST_CPU = 10, 2


@pytest.mark.background
@pytest.mark.parametrize("kind", KINDS)
def test_bad_server(kind):
    (said, reasons), life = KINDS[kind], LONG_LIFE if kind == "no answer" else LIFE
    state = State()
    folder, port, canaries = state.prints, free_port(), Canaries()
    shown, trusted = state / "keys/simulator.pem", (state / "keys/simulator-ca.pem").read_bytes()
    if kind == "certificate":
        shown, expired = expired_certificate(folder)
        trusted += expired.read_bytes()
    (folder / "trusted.pem").write_bytes(trusted)
    broker = Broker(state, port, policy=policy(folder / "policy.json"), apns_ca=folder / "trusted.pem")
    simulator = Simulator(state, port=port)
    try:
        with BadServer(kind, port, shown, folder / "connects") as server:
            broker.start()
            client = Client(broker.port)
            kept = client.room()
            asking, before = Asking(broker, kept), cpu_seconds(broker)
            rooms = [client.room(expires=life) for _ in range(4)]
            ends = max(datetime.fromisoformat(room.creator.answer["expiresAt"]).timestamp() for room in rooms)
            for room in rooms:
                canaries.add("token", bytes.fromhex(room.creator.token))
                canaries.add("room id", room.roomid, base64url_bytes(room.roomid))
                assert client.presence(room.roomid, room.joiner.client).expect(202).json == {"delivery": "queued"}
            eventually(lambda: said in broker.printed(), life + 3, 0.1, f"a line that says {said!r}, not {broker.printed()!r}")
            found = eventually(
                lambda: all(found := [ledger.read(state).outcomes(room.creator.ref) for room in rooms]) and found,
                life + 4, 0.2, "the outcomes")
            late, cpu, took = time.time() - ends, cpu_seconds(broker) - before, asking.end()
            connects = server.connects
        assert {(entry["op"], entry["status"]) for (entry,) in found} == {("push.failed", 0)}
        assert {entry["reason"] for (entry,) in found} <= reasons, found
        assert len(connects) <= MOST_CONNECTIONS, f"{len(connects)} connections: {[round(at - connects[0], 2) for at in connects]}"
        told = f"API: {len(took)} answers, median {took[len(took) // 2] * 1000:.0f} ms, longest {took[-1] * 1000:.0f} ms; " \
            f"{cpu:.1f} s of CPU, {len(connects)} connections, {late:.1f} s after the last deadline"
        print(told)
        assert cpu < MOST_CPU and len(took) > 10 and took[len(took) // 2] < 0.1 and took[-2] < 1, told
        assert late < 3.5, told
        lines = [line for line in broker.printed().splitlines() if "APNs" in line]
        assert 1 <= len(lines) <= 3 and all("heck" in line for line in lines), f"each line must say what to fix, and not repeat: {lines}"
        log = ledger.read(state)
        assert {entry["cause"] for room in rooms for entry in log.of(room.creator.ref, "token.purged")} <= {"expired"}
        # APNs is back.
        simulator.start()
        canaries.add("token", bytes.fromhex(kept.creator.token))
        assert client.presence(kept.roomid, kept.joiner.client).expect(202).json == {"delivery": "queued"}
        eventually(lambda: simulator.pushes(kept.creator.token), 20, 0.2, "the next push")
        delivered = eventually(lambda: ledger.read(state).outcomes(kept.creator.ref), 5, 0.2, "its outcome")
        assert [entry["op"] for entry in delivered] == ["push.delivered"]
        metrics = broker.metrics().encode()
        assert canaries.in_bytes(metrics) == [] and canaries.in_files(state.prints, state.folder) == []
    finally:
        broker.kill()
        simulator.kill()
        state.remove()
