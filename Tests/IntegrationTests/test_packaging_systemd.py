"""`mayfly serve` under systemd's protocols: notifications, the watchdog, and sockets that stay open while the broker restarts."""

import http.client
import re
import secrets
import signal
import socket
import threading
import time
from collections import Counter

import pytest

from bad_requests import CODE, request
from listeners import accept, fresh
from peers import Peer
from processes import Broker, State, eventually, free_port, mayfly
from world import World


class Notifications:
    """The socket that a service manager reads: a path, or a name in Linux's abstract namespace."""

    def __init__(self, folder, is_abstract=False):
        self.name = f"@{folder}/notify" if is_abstract else f"{folder}/notify"
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(self.name.replace("@", "\0", 1) if is_abstract else self.name)

    def next(self, seconds=15):
        """The next message's variables."""
        self.socket.settimeout(seconds)
        return dict(line.split("=", 1) for line in self.socket.recv(4096).decode().splitlines())

    def before(self, name):
        """The messages before the first one with the variable."""
        messages = []
        while name not in (message := self.next()):
            messages.append(message)
        return messages

    def ends(self):
        with pytest.raises(TimeoutError):
            self.next(0.1)


@pytest.mark.parametrize("is_abstract", [False, True], ids=["path", "abstract"])
def test_the_manager_is_told_of_start_and_stop(tmp_path, is_abstract):
    told = Notifications(tmp_path, is_abstract)
    with World(apns=False, environment={"NOTIFY_SOCKET": told.name}) as world:
        places = world.broker.port, world.broker.operator_port
        assert told.next() == {"READY": "1", "STATUS": "Serving apps at 127.0.0.1:%d, the operator at 127.0.0.1:%d" % places}
        world.client().room()
        assert world.broker.stop() == 0
        assert told.next() == {"STOPPING": "1", "STATUS": "Answering open requests"}
        told.ends()


def test_a_broker_that_cannot_start_reports_no_readiness(tmp_path):
    told = Notifications(tmp_path)
    ran = mayfly("serve", "--state", tmp_path / "nothing", NOTIFY_SOCKET=told.name)
    assert ran.returncode == 1 and "keys init" in ran.stderr
    told.ends()


def test_a_manager_that_does_not_listen_delays_nothing(tmp_path):
    with World(apns=False, environment={"NOTIFY_SOCKET": tmp_path / "nothing"}) as world:
        assert "can't be told READY=1" in world.broker.printed()
        assert world.broker.stop() == 0


def test_the_watchdog_hears_of_the_event_loop(tmp_path):
    told = Notifications(tmp_path)
    with World(apns=False, environment={"NOTIFY_SOCKET": told.name, "WATCHDOG_USEC": "200000"}) as world:
        assert "READY" in told.next()
        assert [told.next() for _ in range(5)] == [{"READY": "1", "WATCHDOG": "1"}] * 5
        assert world.broker.stop() == 0
        assert all(message == {"READY": "1", "WATCHDOG": "1"} for message in told.before("STOPPING"))


def test_a_watchdog_of_another_process_hears_nothing(tmp_path):
    told = Notifications(tmp_path)
    with World(apns=False, environment={"NOTIFY_SOCKET": told.name, "WATCHDOG_USEC": "2000", "WATCHDOG_PID": 1}) as world:
        assert world.broker.stop() == 0
        assert [message.keys() for message in told.before("STOPPING")] == [{"READY", "STATUS"}]


class Held:
    """Sockets that these tests keep open, as systemd does for socket units, and hand to each start of a broker under these names."""

    def __init__(self, *names, path=None):
        self.sockets = []
        for _ in names:
            one = socket.socket(socket.AF_UNIX) if path else socket.socket()
            one.bind(str(path) if path else ("127.0.0.1", free_port()))
            one.listen(4096)
            self.sockets.append(one)
        self.names = names

    def give(self, broker):
        numbers = [one.fileno() for one in self.sockets]
        # Above the numbers that systemd's protocol uses, so that none is overwritten before it is copied.
        high = [50 + index for index in range(len(numbers))]
        moves = [*(f"{to}<&{number} {number}<&-" for to, number in zip(high, numbers)), *(f"{3 + index}<&{to} {to}<&-" for index, to in enumerate(high))]
        variables = f"LISTEN_PID=$$ LISTEN_FDS={len(numbers)} LISTEN_FDNAMES={':'.join(self.names)}"
        broker.prefix = ("bash", "-c", f'{variables} exec "$@" {" ".join(moves)}', "bash")
        broker.descriptors = tuple(numbers)
        for name, one in zip(self.names, self.sockets):
            if name == "apps" and one.family == socket.AF_INET:
                broker.port = one.getsockname()[1]
            elif name == "operator":
                broker.operator_port = one.getsockname()[1]


@pytest.fixture
def activated():
    """Makes a broker that hasn't started, with sockets held for it."""
    worlds, sockets = [], []

    def make(held, **options):
        names = {"apps": "listen", "operator": "operator_listen"}
        world = World(apns=False, start=False, **{names[name]: None for name in held.names if name in names} | options)
        held.give(world.broker)
        worlds.append(world)
        sockets.extend(held.sockets)
        return world
    yield make
    for world in worlds:
        world.close()
    for one in sockets:
        one.close()


def ask(port):
    """One request on a connection of its own: the status, or the error's name."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("GET", "/audit/checkpoint")
        answer = connection.getresponse()
        answer.read()
        return answer.status
    except (OSError, http.client.HTTPException) as error:
        return type(error).__name__
    finally:
        connection.close()


def asked_during(restarts, port, callers=4):
    """The outcomes of requests by callers that connect all the time, while `restarts` runs."""
    outcomes, is_over = Counter(), threading.Event()

    def keep_asking():
        while not is_over.is_set():
            outcomes[ask(port)] += 1
    threads = [threading.Thread(target=keep_asking) for _ in range(callers)]
    for thread in threads:
        thread.start()
    try:
        restarts()
    finally:
        is_over.set()
        for thread in threads:
            thread.join()
    return outcomes


@pytest.mark.parametrize("is_held", [True, False], ids=["held", "own"])
def test_restarts_refuse_nobody_while_the_socket_is_held(activated, is_held):
    """A broker with a socket of its own refuses connections in the same restarts, so the callers would notice."""
    world = activated(Held("apps") if is_held else Held())
    broker = world.broker
    broker.start()

    def restarts():
        for _ in range(3):
            time.sleep(0.3)
            assert broker.stop() == 0, broker.printed()
            time.sleep(0.3)
            broker.start()
        time.sleep(0.3)
    outcomes = asked_during(restarts, broker.port)
    print(dict(outcomes))
    assert outcomes[200] > 50
    assert (outcomes.keys() == {200}) == is_held, outcomes


def test_both_listeners_can_be_held(activated):
    world = activated(Held("operator", "apps"))
    world.broker.start()
    world.client().room()
    assert world.broker.metric("rooms") == 5  # one, rounded
    assert f"apps at 127.0.0.1:{world.broker.port}, operator at 127.0.0.1:{world.broker.operator_port}" in world.broker.printed()


def test_a_held_path_stays_when_the_broker_stops(activated, tmp_path):
    path = tmp_path / "apps.sock"
    world = activated(Held("apps", path=path), trusted_proxies="unix")
    for _ in range(2):
        world.broker.start()
        with Peer(path) as peer:
            code = fresh()
            peer.send(request().replace(CODE, code))
            assert peer.answer().status == 201
            peer.send(accept(code))
            assert peer.answer().status == 200
        assert world.broker.stop() == 0
        assert path.is_socket()


def test_systemd_socket_activate_starts_the_broker_at_the_first_connection(worlds):
    world = worlds(apns=False, start=False, listen=None)
    broker = world.broker
    broker.prefix = ("systemd-socket-activate", f"--listen=127.0.0.1:{broker.port}", "--fdname=apps")
    broker.start(wait=False)
    eventually(lambda: f"Listening on 127.0.0.1:{broker.port}" in broker.printed(), what="the socket")
    assert not broker.is_ready()
    with Peer(broker.port, timeout=30) as peer:
        peer.send(request())
        assert peer.answer().status == 201
    assert broker.is_ready() and broker.stop() == 0


@pytest.mark.parametrize("names, options, text", [
    (["mayfly.socket"], {}, "FileDescriptorName=apps"),
    (["apps", "apps"], {}, "2 sockets for apps, and Mayfly serves one"),
    (["apps"], {"listen": "127.0.0.1:1"}, "--listen (MAYFLY_LISTEN) isn't 127.0.0.1:"),
    (["operator"], {"operator_listen": "127.0.0.1:1"}, "--operator-listen (MAYFLY_OPERATOR_LISTEN) isn't 127.0.0.1:"),
])
def test_sockets_that_contradict_the_settings_are_refused(activated, names, options, text):
    broker = activated(Held(*names), **options).broker
    broker.start(wait=False)
    assert broker.child.wait(15) == 2
    assert text in broker.printed()


def test_a_held_socket_beyond_loopback_needs_tls(activated):
    """As does an address of one's own. The address is reserved for documentation, and no interface has it."""
    held = Held("apps")
    beyond = socket.socket()
    ip_freebind = 15
    beyond.setsockopt(socket.IPPROTO_IP, ip_freebind, 1)
    beyond.bind(("192.0.2.1", free_port()))
    beyond.listen()
    held.sockets[0].close()
    held.sockets = [beyond]
    broker = activated(held).broker
    broker.start(wait=False)
    assert broker.child.wait(15) == 2
    assert "192.0.2.1 is beyond loopback" in broker.printed()


def test_a_connection_in_place_of_a_listener_is_refused(activated):
    """`Accept=yes` hands over connections."""
    held = Held("apps")
    client = socket.create_connection(held.sockets[0].getsockname())
    connection, _ = held.sockets[0].accept()
    held.sockets[0].close()
    held.sockets = [connection]
    broker = activated(held).broker
    broker.start(wait=False)
    assert broker.child.wait(15) == 2
    assert "Accept=no" in broker.printed()
    client.close()


def test_programs_of_the_broker_inherit_nothing_from_the_manager(tmp_path):
    """The command that prints the wrapping key sees neither sockets nor variables."""
    told, seen, command = Notifications(tmp_path), tmp_path / "seen", tmp_path / "command"
    (tmp_path / "key").write_bytes(secrets.token_bytes(32))
    command.write_text(f"#!/bin/sh\nenv >{seen}\nls -l /proc/self/fd >>{seen}\ncat {tmp_path}/key\n")
    command.chmod(0o700)
    state, held = State(keys=None), Held("apps")
    wrapping = f"command:{command}"
    made = mayfly("keys", "init", "--state", state.folder, "--origin", "mayfly.test/log", "--wrapping-key", wrapping)
    assert made.returncode == 0, made.stderr
    broker = Broker(state, listen=None, wrapping_key=wrapping, apns_key_path=None, apns_key_id=None, apns_team_id=None, apns_ca=None)
    held.give(broker)
    seen.unlink()
    try:
        broker.start(NOTIFY_SOCKET=told.name, WATCHDOG_USEC=10_000_000, WATCHDOG_PID="")
        environment = seen.read_text()
        assert "PATH=" in environment
        assert not re.search("NOTIFY_SOCKET|WATCHDOG_|LISTEN_|socket:", environment), environment
        broker.child.send_signal(signal.SIGTERM)
        assert broker.child.wait(15) == 0
    finally:
        broker.kill()
        state.remove()
        for one in held.sockets:
            one.close()
