"""Several nodes on PostgreSQL: all serve, and whatever happens to one, another goes on with rooms, pushes, keys and log."""

import itertools
import json
import os
import random
import re
import signal
import socket
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from companion_client import Caller
from companion_world import users
from databases import Server, Standby
from mayfly import Client, Socket, new_client, new_code, new_token
from nodes import Deployment, Load, Watchers, issue
from processes import REPOSITORY, eventually, free_port, mayfly, quick_rooms
from raw_socket import RawSocket


@pytest.fixture
def pair():
    with Deployment() as deployment:
        deployment.simulator.start()
        deployment["a"].start()
        yield deployment


@pytest.fixture
def trio():
    with Deployment("abc") as deployment:
        yield deployment.start()


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


# Promise: several-nodes-serve
def test_a_room_and_its_two_phones_at_three_nodes(trio):
    a, b, c = (Client(node.port) for node in trio.nodes.values())
    code, ann, ben, token = new_code(), new_client(), new_client(), new_token()
    room = a.create(code, ann, token, 3600).expect(201).json["roomid"]
    # A lost answer is repeated by any node.
    assert b.create(code, ann, token, 3600).expect(200).json["roomid"] == room
    b.accept(code, ben, new_token()).expect(200)
    c.accept(code, new_client()).expect(409, "room_already_accepted")
    assert c.presence(room, ben).expect(202).json == {"delivery": "queued"}
    eventually(lambda: trio.simulator.pushes(token), what="the push")
    assert a.presence(room, ann).expect(202).json == {"delivery": "peer_present"}
    eventually(lambda: b.status(room).json["creatorPresent"] and b.status(room).json["joinerPresent"], what="both at the third node")
    with Socket(trio["a"]) as one, Socket(trio["b"]) as two:
        assert one.join(room, ann)["peerPresent"]
        two.join(room, ben)
        a.delete(room).expect(200)
        assert one.expect("room_closed") and two.expect("room_closed")
    c.status(room).expect(404, "room_not_found")


# Promise: presence-over-nodes
def test_a_suspended_phone_at_another_node_is_pushed_to(trio):
    room = Client(trio["a"].port).room()
    with RawSocket(trio["b"]) as creator, Socket(trio["c"]) as joiner:
        creator.join(room.roomid, room.creator)
        time.sleep(2.2)
        begin = time.monotonic()
        assert joiner.join(room.roomid, room.joiner.client)["delivery"] == "peer_present"
        assert joiner.receive(timeout=5) == {"type": "peer_left", "delivery": "queued"}
        assert time.monotonic() - begin < 4
        eventually(lambda: trio.simulator.pushes(room.creator.token), what="the push")
    # A phone that answers is not pushed to.
    room = Client(trio["a"].port).room()
    with Socket(trio["b"]) as creator, Socket(trio["c"]) as joiner:
        creator.join(room.roomid, room.creator.client)
        for _ in range(3):
            time.sleep(2.2)
            assert Client(trio["a"].port).presence(room.roomid, room.joiner.client).json == {"delivery": "peer_present"}
        joiner.join(room.roomid, room.joiner.client)
        time.sleep(3)
        assert trio.simulator.pushes(room.creator.token) == []


# Promise: one-accept
@pytest.mark.parametrize("times", [30, pytest.param(1000, marks=pytest.mark.campaign)])
def test_of_fifty_accepts_at_three_nodes_one_wins(trio, times):
    ports = itertools.cycle([node.port for node in trio.nodes.values()])
    clients = [Client(next(ports), checked=False, timeout=30) for _ in range(50)]
    names = [new_client() for _ in clients]
    creator = Client(trio["a"].port, checked=False)
    with ThreadPoolExecutor(50) as pool:
        for _ in range(times):
            code = new_code()
            creator.create(code, new_client(), None, 600).expect(201)
            answers = list(pool.map(lambda pair: pair[0].accept(code, pair[1]).status, zip(clients, names)))
            assert Counter(answers) == {200: 1, 409: 49}, Counter(answers)


def test_news_of_a_session_reach_sockets_at_other_nodes():
    with Deployment("ab", policy="rooms,companion") as deployment:
        deployment.start()
        jwts = users(deployment.state)
        ann, back_end = Caller(deployment["a"], jwts.token("ann")), Caller(deployment["b"], jwts.back_end())
        with ann.socket() as socket, back_end.socket() as heard:
            other = Caller(deployment["b"], jwts.token("ann"))
            other.event("one", "state_change", {"newState": "processing"}).expect(202)
            assert socket.news("state_change")["data"]["newState"] == "processing"
            request = back_end.event("one", "approval_request", {}, user="ann").expect(202).json["requestId"]
            assert socket.news("approval_request")["requestId"] == request
            # The answer reaches the back end that asked at another node.
            ann.respond(request, True).expect(200)
            assert heard.news("approval_response")["approved"] is True


# Promise: budgets-over-nodes
def test_guesses_at_three_nodes_have_one_budget(trio):
    clients = [Client(node.port, address="127.9.9.9") for node in trio.nodes.values()]
    eventually(lambda: all(node.metric("nodes") == 3 for node in trio.nodes.values()), what="nodes that hear each other")
    answers = Counter(client.accept(new_code()).status for _ in range(50) for client in clients)
    limit = json.loads((REPOSITORY / "policies/rooms.json").read_text())["limits"]["wrongCodes"]["perAddress"]["count"]
    assert set(answers) == {404, 429} and limit <= answers[404] <= limit + 2, (answers, limit)


# Promise: test-push-limit
def test_test_pushes_at_three_nodes_have_one_budget(trio):
    clients = [Client(node.port) for node in trio.nodes.values()]
    eventually(lambda: all(node.metric("nodes") == 3 for node in trio.nodes.values()), what="nodes that hear each other")
    room = clients[0].room()
    answers = Counter(client.test_push(room.roomid, room.creator.client).status for _ in range(3) for client in clients)
    assert answers == {202: 3, 429: 6}
    eventually(lambda: len(trio.simulator.pushes(room.creator.token)) == 3, what="the pushes")


def test_two_nodes_together_grant_one_test_push_more(pair):
    pair["b"].start()
    clients = [Client(node.port) for node in (pair["a"], pair["b"])]
    eventually(lambda: all(pair[name].metric("nodes") == 2 for name in "ab"), what="nodes that hear each other")
    room = clients[0].room()
    answers = Counter(client.test_push(room.roomid, room.creator.client).status for _ in range(3) for client in clients)
    assert answers == {202: 4, 429: 2}


# Promise: takeover-keeps-rooms, one-ledger
def test_another_node_leads_with_keys_rooms_and_log(pair):
    first, second = pair["a"], pair["b"].start()
    client = Client(first.port)
    room = client.room()
    client.close()
    early = checkpoint(first)
    first.kill()
    eventually(lambda: pair.leading is second, 30, what="the takeover")
    client = Client(second.port)
    # Its keys open what the other one sealed.
    client.presence(room.roomid, room.joiner.client).expect(202)
    pushed = eventually(lambda: pair.simulator.pushes(room.creator.token), what="a push by the second node")
    assert len(pushed) == 1
    # And the first follows the second.
    first.start()
    second.stop()
    eventually(lambda: pair.leading is first, 15, what="the way back")
    client = Client(first.port)
    client.delete(room.roomid).expect(200)
    client.close()
    first.stop()
    verified(first, early)


# Promise: jobs-of-a-dead-node
@pytest.mark.background
def test_the_pushes_of_a_killed_node_are_sent_by_another():
    """The grace after a start holds them back, so the node dies with all of them."""
    with Deployment(grace=20) as deployment:
        first, victim = deployment.start().nodes.values()
        rooms = [Client(first.port).room() for _ in range(20)]
        client = Client(victim.port)
        for room in rooms:
            assert client.presence(room.roomid, room.joiner.client).expect(202).json["delivery"] == "queued"
        assert deployment.simulator.pushes() == []
        victim.kill()
        for room in rooms:
            eventually(lambda room=room: deployment.simulator.pushes(room.creator.token), 40, what="a push by another node")
        assert len(deployment.simulator.pushes()) == 20
        # Each has one outcome.
        first.stop()
        verified(first)


# Promise: suspended-node-writes-nothing
def test_a_suspended_node_writes_nothing_once_another_leads(pair):
    first, second = pair["a"], pair["b"].start()
    first.child.send_signal(signal.SIGSTOP)
    eventually(lambda: pair.leading is second, 30, what="the takeover")
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
    assert "another node has ended this one's term" in first.printed()
    second.stop()
    verified(second)


def test_a_lone_node_says_what_its_restart_would_cost(pair):
    """At the start, and when it becomes alone: one line each, and one when another node has the keys too."""
    first, second = pair["a"], pair["b"]
    alone, shared = "this node is alone, and its keys are only in memory", "another node now has the keys"

    def lines(node, text):
        return node.printed().count(text)
    eventually(lambda: lines(first, alone) == 1, what="the warning at the start")
    assert first.metric("keys_alone") == 1
    second.start()
    eventually(lambda: lines(first, shared) == 1, what="its end")
    assert first.metric("keys_alone") == 0 and second.metric("keys_alone") == 0
    assert second.stop() == 0
    eventually(lambda: lines(first, alone) == 2, what="the warning after the other node's end")
    # Several rounds later there is no further line.
    time.sleep(5)
    assert lines(first, alone) == 2 and lines(first, shared) == 1 and first.metric("alarms_total") == 0
    # What it warned of is no silent loss either.
    room = Client(first.port).room()
    assert first.stop() == 0
    first.start()
    Client(first.port).status(room.roomid).expect(404)
    assert "All that was sealed under them is forgotten now" in first.printed() and first.metric("alarms_total") > 0


def test_a_lone_node_with_a_wrapped_key_file_warns_of_nothing(tmp_path):
    wrapping = tmp_path / "wrapping.key"
    wrapping.touch(0o600)
    wrapping.write_bytes(os.urandom(32))
    with Deployment("a", wrapping_key=wrapping) as deployment:
        node = deployment.start()["a"]
        room = Client(node.port).room()
        time.sleep(3)
        assert node.metric("keys_alone") == 0
        assert node.stop() == 0 and "is alone" not in node.printed()
        Client(node.start().port).status(room.roomid).expect(200)
        assert node.metric("alarms_total") == 0


def test_a_lone_node_gets_a_wrapped_key_file_without_a_loss(pair, tmp_path):
    """As docs/postgresql.md says: with the help of a second node."""
    first, second = pair["a"], pair["b"].start()
    room = Client(first.port).room()
    first.stop()
    wrapping = first.options["wrapping-key"] = tmp_path / "wrapping.key"
    wrapping.touch(0o600)
    wrapping.write_bytes(os.urandom(32))
    first.start()
    assert second.stop() == 0
    eventually(lambda: pair.leading is first, 30, what="the lease")
    first.stop()
    first.start()
    Client(first.port).status(room.roomid).expect(200)
    assert "is alone" not in first.printed()


def test_a_node_reports_its_certificates_end():
    """In a week the node that leads lets nobody in. Until then there is a line a day."""
    with Deployment("a") as deployment:
        node = deployment["a"]
        node.options["node-certificate"] = issue(deployment.authority, "a", days=5)
        deployment.start()
        eventually(lambda: "certificates: the certificate of --node-certificate" in node.printed(), what="the line")
        [line] = [line for line in node.printed().splitlines() if "certificates:" in line]
        assert "error: " in line and re.search("expires in [45] days, on 20", line) and "restart this node while another one is ready" in line
        assert node.metric("alarms_total") > 0
        uses = dict(re.findall(r'^mayfly_certificate_expiry_timestamp_seconds\{use="([a-z-]+)"\} (\d+)$', node.metrics(), re.M))
        assert uses.keys() == {"node-certificate", "node-ca", "apns-ca"}, uses
        assert abs(int(uses["node-certificate"]) - time.time() - 5 * 86_400) < 120
        assert abs(int(uses["node-ca"]) - time.time() - 90 * 86_400) < 120


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


# Promise: nodes-agree
def test_nobody_leads_with_another_policy_beside_others():
    """A node with a key file takes its lease back at once. Its followers would go on with the old policy."""
    with Deployment() as deployment:
        deployment.start()
        first = deployment["a"]
        first.stop()
        policy = quick_rooms()
        policy["limits"]["knockThrottleSeconds"] = 29
        (first.cwd / "rooms").write_text(json.dumps(policy))
        first.start(wait=False)
        assert first.child.wait(15) not in (0, None)
        assert "other policies" in first.printed(), first.printed()


def test_a_node_that_could_never_serve_is_refused(pair):
    other = pair["b"]
    given = dict(other.options)
    for changes, told in [
            ({"node": "a"}, "another node serves under the name a"),
            ({"node-listen": None, "node-certificate": None, "node-ca": None}, "a serves. A node beside it needs --node-listen"),
            ({"node-certificate": issue(pair.authority, "wrong", "10.0.0.12")}, "must name the address of --node-listen")]:
        other.options = given | changes
        other.start(wait=False)
        assert other.child.wait(15) not in (0, None)
        assert told in other.printed(), other.printed()


# Promise: no-keys-no-takeover
def test_a_node_without_the_latest_keys_does_not_lead(pair):
    first, second = pair["a"], pair["b"].start()
    pair.schema.run("UPDATE node SET value = '\\x00000000000000ff' WHERE name = 'ratchet.steps'")
    first.kill()
    eventually(lambda: "waiting for a node with the latest keys" in second.printed(), 20, what="the refusal")
    assert pair.leading is None
    pair.schema.run("UPDATE node SET value = '\\x0000000000000001' WHERE name = 'ratchet.steps'")
    eventually(lambda: pair.leading is second, 15, what="the takeover")


def test_a_node_that_meets_lost_commits_before_it_serves_goes_on_when_they_are_back():
    """A failover to a server without the last lease, and back, while a node waits for the end of its earlier term."""
    with Deployment("a") as deployment:
        deployment.start()
        node, schema = deployment["a"], deployment.schema
        node.kill()
        node.start(wait=False)
        eventually(lambda: "waiting for the end of its own" in node.printed(), 20, what="a node that waits")
        schema.run("UPDATE lease SET term = term - 1")
        eventually(lambda: "has lost commits" in node.printed(), 20, what="the line")
        schema.run("UPDATE lease SET term = term + 1")
        eventually(lambda: node.is_serving, 40, what="a node that serves")


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


class Strangers(threading.Thread):
    """Forty addresses without certificates. Each keeps eight connections to a port, half in the middle of a handshake, and makes new ones for lost ones."""

    def __init__(self, port):
        super().__init__(daemon=True)
        self.port, self.ended, self.made = port, False, 0

    def run(self):
        held = {}
        while not self.ended:
            for number in range(320):
                if number in held and not self.is_closed(held[number]):
                    continue
                connection = held[number] = socket.socket()
                try:
                    connection.bind((f"127.67.0.{number // 8 + 1}", 0))
                    connection.connect(("127.0.0.1", self.port))
                    self.made += 1
                    if number % 2:
                        connection.send(b"\x16\x03\x01\x02\x00\x01")  # The head of a record, as a ClientHello has it.
                    connection.setblocking(False)
                except OSError:
                    connection.close()
                    del held[number]
            time.sleep(0.02)
        for connection in held.values():
            connection.close()

    @staticmethod
    def is_closed(connection):
        try:
            return connection.recv(1_000) == b""
        except BlockingIOError:
            return False
        except OSError:
            return True

    def __enter__(self):
        self.start()
        eventually(lambda: self.made > 320, 20, what="as many connections as there may be")
        return self

    def __exit__(self, *_):
        self.ended = True
        self.join()


# Promise: strangers-stop-no-node
def test_strangers_at_the_node_port_keep_no_node_out(pair):
    with Strangers(pair["a"].node_port):
        pair["b"].start()
        assert pair["b"].is_serving
        room = Client(pair["a"].port).create(token=new_token()).expect(201).json["roomid"]
        assert Client(pair["b"].port).status(room).status == 200


def check_load(deployment, load, watchers, checkpoints, kills=0):
    """Everything acknowledged is there, no push was sent as two, nobody present was pushed, and the log continues all its checkpoints."""
    eventually(lambda: deployment.leading and deployment.leading.is_serving, 40, what="a node that leads")
    leading = deployment.leading
    client = Client(leading.port, checked=False, timeout=30)
    accepted = {roomid: isaccepted for roomid, isaccepted in load.rooms}
    lost = [roomid for roomid, is_accepted in accepted.items()
            if (answer := client.status(roomid)).status != 200 or is_accepted and not answer.json["accepted"]]
    assert not lost, f"{len(lost)} of {len(accepted)} acknowledged rooms are lost"
    for node in deployment.nodes.values():
        if node is not leading and node.running:
            node.stop()
    leading.stop()
    verified(leading, *checkpoints)
    watchers.collected.collect()
    by_job, ids = watchers.collected.count(set(load.tokens)), watchers.collected.ids()
    twice = [token for token, number in by_job.items() if number > 1]
    different = [token for token in twice if len(ids[token]) > 1]
    print(f"\nkills: {kills}; rooms {len(accepted)}, pushes {len(by_job)}, sent twice with one apns-id {len(twice)}, errors {dict(load.errors)}; "
          f"longest gap {load.gap:.1f} s, p99 {load.p99() * 1000:.0f} ms; {watchers.told()}")
    assert not watchers.collected.gaps, "this test has not seen all pushes"
    assert not different, f"{len(different)} tokens got one push with different apns-ids"
    wronged = [moment for moment in watchers.wronged if not load.stalled(moment)]
    gaps = [(f"{a - moment:.1f} s", f"{b - a:.1f} s") for moment in wronged for a, b in load.gaps if b - a > 0.5 and abs(a - moment) < 20]
    assert not wronged, f"{watchers.told()}; times without a new room, since that push and how long: {gaps}"


def rounds(deployment, count, failover=None):
    """Kills each node in turn under load, again and again, then the database's primary."""
    checkpoints = []
    load, watchers = Load(deployment), Watchers(deployment)
    try:
        for number in range(count):
            time.sleep(2.5)
            eventually(lambda: deployment.leading, 40, what="a node that leads")
            checkpoints.append(checkpoint(deployment.leading))
            victim = list(deployment.nodes.values())[number % len(deployment.nodes)]
            victim.kill()
            time.sleep(1)
            if failover and number % 3 == 2:
                failover()
            try:
                victim.start()
            except AssertionError:
                print(victim.printed())
                raise
        time.sleep(2)
    finally:
        load.stop()
        watchers.stop()
    check_load(deployment, load, watchers, checkpoints, count)


# Promise: takeover-loses-nothing
def test_a_killed_node_under_load_loses_nothing(trio):
    rounds(trio, 1)


@pytest.mark.alone
@pytest.mark.campaign
def test_a_dozen_kills_under_load_lose_nothing(trio):
    rounds(trio, 12)


class Servers:
    """A primary and its synchronous standby, at ports that are known before."""

    def __init__(self):
        self.ports = [free_port() for _ in range(6)]
        self.primary = Server()
        self.made = [self.primary]
        self.standby = self._standby()

    def _standby(self):
        standby = Standby(self.primary, synchronous=True, port=self.ports.pop())
        self.made.append(standby)
        return standby

    @property
    def uri(self):
        hosts = [self.primary.port, self.standby.port, *self.ports]
        return f"postgresql://mayfly@{','.join(f'127.0.0.1:{port}' for port in hosts)}/mayfly"

    def fail_over(self):
        """Kills the primary, promotes the standby, and gives it a standby of its own."""
        self.primary.stop()
        time.sleep(1)
        self.standby.promote()
        self.primary = self.standby
        self.standby = self._standby()

    def close(self):
        for server in reversed(self.made):
            server.close()


@pytest.fixture
def servers():
    servers = Servers()
    try:
        yield servers
    finally:
        servers.close()


# Promise: failover-loses-nothing
@pytest.mark.alone
@pytest.mark.campaign
def test_a_dozen_kills_and_failovers_under_load_lose_nothing(servers):
    with Deployment("abc", server=servers.uri) as deployment:
        rounds(deployment.start(), 12, failover=servers.fail_over)


# Promise: silent-host
def test_a_host_that_answers_nothing_does_not_hide_the_next():
    """As a machine without power. A kernel that refuses connections would be too kind."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(64)
        with Deployment("ab") as deployment:
            for node in deployment.nodes.values():
                node.options["database"] = re.sub("@", f"@127.0.0.1:{silent.getsockname()[1]},", node.options["database"])
            deployment.start()
            Client(deployment["b"].port).room()


@pytest.mark.alone
@pytest.mark.campaign
def test_nodes_leave_a_primary_whose_commits_hang(servers):
    """As after the death of a Patroni whose PostgreSQL runs on: the promoted standby no longer follows it, so no commit there ends."""
    with Deployment("ab", server=servers.uri) as deployment:
        deployment.start()
        room = Client(deployment["a"].port).room()
        servers.standby.promote()

        def made():
            try:
                return Client(deployment["b"].port, timeout=60).create(expires=600).status == 201
            except OSError:
                return False
        eventually(made, 90, what="service by the promoted server")
        assert deployment["a"].running and deployment["b"].running
        schema = deployment.schema.name
        assert servers.standby.run(f"SELECT count(*) FROM {schema}.room") == [(2,)]
        Client(deployment["a"].port, timeout=60).status(room.roomid).expect(200)
        servers.primary.stop()


@pytest.mark.alone
@pytest.mark.campaign
def test_lost_messages_and_sessions_ring_nobody(trio):
    """All sessions of the nodes are ended again and again: messages are lost, and statements are cut."""
    load, watchers = Load(trio, threads=2), Watchers(trio)
    try:
        for _ in range(15):
            time.sleep(random.uniform(0.5, 2))
            trio.schema.run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'mayfly' AND pid <> pg_backend_pid()")
    finally:
        load.stop()
        watchers.stop()
    check_load(trio, load, watchers, [])


@pytest.mark.alone
@pytest.mark.campaign
def test_a_node_stopped_for_a_minute_comes_back(trio):
    load, watchers = Load(trio, threads=2), Watchers(trio)
    try:
        for victim in (trio["b"], trio["a"]):
            time.sleep(2)
            victim.child.send_signal(signal.SIGSTOP)
            load.avoid(victim)
            watchers.suspended = victim
            time.sleep(60)
            victim.child.send_signal(signal.SIGCONT)
            time.sleep(3)
            if not victim.running:
                victim.start()
            load.avoid(None)
            watchers.suspended = None
    finally:
        load.stop()
        watchers.stop()
    check_load(trio, load, watchers, [])
