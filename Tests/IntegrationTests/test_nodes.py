"""Two nodes on PostgreSQL: the standby takes over with keys and log, whatever happens to the other."""

import json
import signal
import threading
import time
from collections import Counter

import pytest

import ledger
from databases import Server, Standby
from mayfly import Client, Socket, new_client, new_code, new_token
from nodes import Deployment, issue
from processes import eventually, mayfly, quick_rooms


@pytest.fixture
def pair():
    with Deployment() as deployment:
        deployment.simulator.start()
        deployment["a"].start()
        yield deployment


def checkpoint(node):
    return (node.folder / "ledger/checkpoint").read_bytes()


def verified(node, *since):
    """Checks a node's folder, also against checkpoints that were published earlier."""
    files = []
    for number, note in enumerate(since):
        path = node.state.prints / f"checkpoint-{number}"
        path.write_bytes(note)
        files += ["--since", path]
    ran = mayfly("audit", "verify", node.folder / "ledger", "--key", (node.folder / "ledger.vkey").read_text().strip(), *files, timeout=120)
    assert ran.returncode == 0, ran.stdout + ran.stderr


# Promise: takeover-keeps-rooms, one-ledger
def test_the_standby_takes_over_with_keys_rooms_and_log(pair):
    first, second = pair["a"], pair["b"].stand_by()
    client = Client(first.port)
    room = client.room()
    client.close()
    early = checkpoint(first)
    first.kill()
    eventually(lambda: second.is_serving, 30, what="the takeover")
    client = Client(second.port)
    # Its keys open what the other one sealed.
    client.presence(room.roomid, room.joiner.client).expect(202)
    pushed = eventually(lambda: pair.simulator.pushes(room.creator.token), what="a push by the second node")
    assert len(pushed) == 1
    # And the first stands by for the second.
    first.stand_by()
    second.stop()
    eventually(lambda: first.is_serving, 15, what="the way back")
    client = Client(first.port)
    client.delete(room.roomid).expect(200)
    client.close()
    first.stop()
    verified(first, early)


# Promise: suspended-node-writes-nothing
def test_a_suspended_node_writes_nothing_once_another_serves(pair):
    first, second = pair["a"], pair["b"].stand_by()
    first.child.send_signal(signal.SIGSTOP)
    eventually(lambda: second.is_serving, 30, what="the takeover")
    # These wait in the suspended node's socket until it goes on.
    late = Client(first.port, timeout=10)
    answers = []

    def create():
        try:
            answers.append(late.create(expires=600).status)
        except OSError:
            answers.append(None)
    thread = threading.Thread(target=create)
    thread.start()
    time.sleep(0.3)
    rooms = pair.schema.run("SELECT count(*) FROM room")[0][0]
    first.child.send_signal(signal.SIGCONT)
    thread.join(15)
    assert first.child.wait(15) == 1
    assert answers[0] != 201 and pair.schema.run("SELECT count(*) FROM room")[0][0] == rooms
    assert "another node serves now" in first.printed()
    second.stop()
    verified(second)


@pytest.mark.parametrize("difference, told", [("key", "another log key or origin"), ("policy", "other policies")])
# Promise: nodes-agree
def test_a_node_with_other_rules_is_refused(pair, difference, told):
    other = pair["b"]
    if difference == "key":
        for name in ("ledger.key", "apns.p8"):
            (other.folder / "keys" / name).unlink()
        (other.folder / "ledger.vkey").unlink()
        (other.folder / "ledger.key").unlink(missing_ok=True)
        made = mayfly("keys", "throwaway", "--state", other.folder, "--database", pair.schema.uri, "--origin", "mayfly.test/log")
        assert made.returncode == 0, made.stderr
    else:
        policy = quick_rooms()
        policy["limits"]["knockThrottleSeconds"] = 29
        (other.cwd / "rooms").write_text(json.dumps(policy))
    other.start(wait=False)
    assert other.child.wait(15) not in (0, None)
    assert told in other.printed(), other.printed()


def test_a_node_that_could_never_take_over_is_refused(pair):
    """Its operator believes in a standby otherwise."""
    other = pair["b"]
    given = dict(other.options)
    for changes, told in [
            ({"node": "a"}, "another node serves under the name a"),
            ({"node-listen": None, "node-certificate": None, "node-ca": None}, "a serves. A node that stands by for it needs --node-listen"),
            ({"node-certificate": issue(pair.authority, "wrong", "10.0.0.12")}, "must name the address of --node-listen")]:
        other.options = given | changes
        other.start(wait=False)
        assert other.child.wait(15) not in (0, None)
        assert told in other.printed(), other.printed()


# Promise: no-keys-no-takeover
def test_a_standby_without_the_latest_keys_waits(pair):
    first, second = pair["a"], pair["b"].stand_by()
    pair.schema.run("UPDATE node SET value = '\\x00000000000000ff' WHERE name = 'ratchet.steps'")
    first.kill()
    eventually(lambda: "waiting for a, which has the latest keys" in second.printed(), 20, what="the refusal")
    assert not second.is_serving
    pair.schema.run("UPDATE node SET value = '\\x0000000000000001' WHERE name = 'ratchet.steps'")
    eventually(lambda: second.is_serving, 15, what="the takeover")


# Promise: node-certificates
def test_strangers_get_no_keys(pair):
    import http.client
    import ssl
    first = pair["a"]
    context = ssl.create_default_context(cafile=pair.authority.path)
    connection = http.client.HTTPSConnection("127.0.0.1", first.node_port, context=context, timeout=5)
    with pytest.raises((ssl.SSLError, OSError)):
        connection.request("POST", "/keys?x&0", bytes(32))
        connection.getresponse().read()


class Load:
    """Callers that make rooms and knock, at whichever node serves. Notes what was acknowledged, and how long each answer took."""

    def __init__(self, deployment, threads=4):
        self.deployment, self.ends = deployment, False
        self.rooms, self.times, self.errors = [], [], Counter()
        self.threads = [threading.Thread(target=self.call) for _ in range(threads)]
        for thread in self.threads:
            thread.start()

    def call(self):
        client = None
        while not self.ends:
            try:
                if client is None:
                    serving = self.deployment.serving
                    if serving is None:
                        time.sleep(0.05)
                        continue
                    client = Client(serving.port, timeout=10, checked=False)
                start = time.monotonic()
                code, creator, joiner, token = new_code(), new_client(), new_client(), new_token()
                created = client.create(code, creator, token, 3600)
                if created.status == 201:
                    roomid = created.json["roomid"]
                    self.rooms.append((roomid, False))
                    accepted = client.accept(code, joiner, new_token())
                    if accepted.status == 200:
                        self.rooms[-1:] = [(roomid, True)] if self.rooms[-1][0] == roomid else self.rooms[-1:] + [(roomid, True)]
                        client.presence(roomid, joiner)
                        self.times.append((start, time.monotonic()))
                    else:
                        self.errors[accepted.status] += 1
                else:
                    self.errors[created.status] += 1
            except OSError as error:
                self.errors[type(error).__name__] += 1
                client = None
                time.sleep(0.02)

    def stop(self):
        self.ends = True
        for thread in self.threads:
            thread.join(30)
        assert not any(thread.is_alive() for thread in self.threads)

    @property
    def gap(self):
        """The longest time in which no room was made, seconds."""
        ends = sorted(end for _, end in self.times)
        return max((b - a for a, b in zip(ends, ends[1:])), default=0)

    def p99(self):
        took = sorted(end - start for start, end in self.times)
        return took[len(took) * 99 // 100]


def rounds(pair, count):
    """Kills the serving node under load, again and again."""
    pair["b"].stand_by()
    checkpoints = []
    load = Load(pair)
    try:
        for _ in range(count):
            time.sleep(2.5)
            serving = pair.serving
            checkpoints.append(checkpoint(serving))
            other = next(node for node in pair.nodes.values() if node is not serving)
            serving.kill()
            eventually(lambda: other.is_serving, 40, what="a takeover")
            serving.stand_by()
        time.sleep(1)
    finally:
        load.stop()
    check_load(pair, load, checkpoints, count)


def check_load(deployment, load, checkpoints, takeovers=0):
    """Everything that was acknowledged is there, no push was sent as two, and the log continues all its checkpoints."""
    serving = deployment.serving
    client = Client(serving.port, checked=False, timeout=30)
    accepted = {roomid: isaccepted for roomid, isaccepted in load.rooms}
    lost = [roomid for roomid, is_accepted in accepted.items()
            if (answer := client.status(roomid)).status != 200 or is_accepted and not answer.json["accepted"]]
    assert not lost, f"{len(lost)} of {len(accepted)} acknowledged rooms are lost"
    serving.stop()
    verified(serving, *checkpoints)
    pushes = deployment.simulator.pushes()
    by_job = Counter(push["token"] for push in pushes)
    print(f"\ntakeovers: {takeovers}; rooms {len(accepted)}, pushes {len(pushes)}, errors {dict(load.errors)}; "
          f"longest gap {load.gap:.1f} s, p99 {load.p99() * 1000:.0f} ms")
    twice = [token for token, number in by_job.items() if number > 1]
    different = [token for token in twice if len({push["headers"]["apns-id"] for push in pushes if push["token"] == token}) > 1]
    assert not different, f"{len(different)} tokens got one push with different apns-ids"


# Promise: takeover-loses-nothing
def test_a_takeover_under_load_loses_nothing(pair):
    rounds(pair, 1)


@pytest.mark.campaign
def test_a_dozen_takeovers_under_load_lose_nothing(pair):
    rounds(pair, 12)


@pytest.fixture
def servers():
    primary = Server()
    made = [primary]
    try:
        made.append(Standby(primary, synchronous=True))
        yield primary, made[1]
    finally:
        for server in reversed(made):
            server.close()


# Promise: failover-loses-nothing
@pytest.mark.campaign
def test_a_failover_of_the_database_under_load_loses_nothing(servers):
    primary, standby = servers
    both = f"postgresql://mayfly@127.0.0.1:{primary.port},127.0.0.1:{standby.port}/mayfly"
    with Deployment(server=both) as deployment:
        deployment.simulator.start()
        deployment["a"].start()
        deployment["b"].stand_by()
        load = Load(deployment)
        try:
            time.sleep(3)
            primary.stop()
            time.sleep(1)
            standby.promote()
            count = len(load.rooms)
            eventually(lambda: len(load.rooms) > count + 50, 60, what="service after the failover")
        finally:
            load.stop()
        check_load(deployment, load, [])
        assert deployment["b"].running
