"""A deployment of several nodes on one PostgreSQL schema, with a simulator. All of them serve, and one leads."""

import json
import random
import shutil
import threading
import time
from collections import Counter
from contextlib import suppress

from websockets.exceptions import WebSocketException

from certificates import Authority, openssl
from mayfly import Client, Socket, new_client, new_code, new_token
from processes import Broker, Simulator, State, free_port, quick_rooms

def issue(authority, name, address="127.0.0.1", days=90):
    """One PEM file with a certificate for an address and its key."""
    folder = authority.folder
    request, key, path, both = (folder / f"{name}.{end}" for end in ("csr", "key", "crt", "pem"))
    extensions = folder / "address.ext"
    extensions.write_text(f"subjectAltName=IP:{address}\n")
    openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", key, "-out", request, "-subj", f"/CN={name}")
    openssl("x509", "-req", "-in", request, "-CA", authority.path, "-CAkey", authority.key, "-CAcreateserial", "-days", days, "-out", path,
            "-extfile", extensions)
    both.write_bytes(path.read_bytes() + key.read_bytes())
    both.chmod(0o600)
    return both


class Node(Broker):
    ready_within = 30.0

    def __init__(self, deployment, name, **changes):
        self.folder = deployment.state.parent / name
        shutil.copytree(deployment.state.folder, self.folder)
        self.node_port = free_port()
        super().__init__(
            deployment.state, deployment.simulator.port, database=deployment.schema.uri, node=name,
            node_listen=f"127.0.0.1:{self.node_port}", node_certificate=issue(deployment.authority, name),
            node_ca=deployment.authority.path, **changes)
        self.options["state"] = self.folder
        self.name = name
        policy = quick_rooms()
        policy["limits"]["startGraceSeconds"] = deployment.grace
        (self.cwd / "rooms").write_text(json.dumps(policy))

    @property
    def leads(self):
        """True if this node holds the lease, and renewed it less than a term ago."""
        now = "floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint"
        return bool(self.deployment_schema.run(f"SELECT 1 FROM lease WHERE holder = %s AND held_until > {now} - 10000", self.name))

    @property
    def is_serving(self):
        return self.running and self.is_ready()


class Deployment:
    """`grace`: for how many seconds knocks at a node wait after its start."""

    def __init__(self, names="ab", server=None, grace=1, **changes):
        self.grace = grace
        self.state = State(postgres=server or True, wrapped=False)
        self.schema = self.state.schema
        self.changes = changes
        self.simulator = Simulator(self.state)
        self.authority = Authority(self.state.prints, "nodes")
        self.nodes = {name: self.node(name, **changes) for name in names}

    def node(self, name, **changes):
        node = Node(self, name, **changes)
        node.deployment_schema = self.schema
        return node

    def __getitem__(self, name):
        return self.nodes[name]

    @property
    def serving(self):
        """A node that serves, or None."""
        return next((node for node in self.nodes.values() if node.is_serving), None)

    @property
    def leading(self):
        """The node that leads, or None."""
        return next((node for node in self.nodes.values() if node.running and node.leads), None)

    def start(self):
        """Starts the simulator and all nodes, the first one first."""
        self.simulator.start()
        for node in self.nodes.values():
            node.start()
        return self

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for node in self.nodes.values():
            node.kill()
        self.simulator.kill()
        self.state.remove()


class Load:
    """Callers that make rooms and knock, each time at another node. Notes what was acknowledged, and how long each answer took."""

    def __init__(self, deployment, threads=4):
        self.deployment, self.ends, self.avoided = deployment, False, None
        self.rooms, self.tokens, self.times, self.errors = [], [], [], Counter()
        self.threads = [threading.Thread(target=self.call) for _ in range(threads)]
        for thread in self.threads:
            thread.start()

    def avoid(self, node):
        """Stops calling this node, which would not answer."""
        self.avoided = node

    def port(self):
        return random.choice([node.port for node in self.deployment.nodes.values() if node is not self.avoided and node.running] or [1])

    def call(self):
        clients = {}

        def client():
            port = self.port()
            if port not in clients:
                clients[port] = Client(port, timeout=10, checked=False)
            return clients[port]
        while not self.ends:
            try:
                start = time.monotonic()
                code, creator, joiner, token = new_code(), new_client(), new_client(), new_token()
                created = client().create(code, creator, token, 3600)
                if created.status != 201:
                    self.errors[created.status] += 1
                    if created.status == 429:
                        clients.clear()  # Each has an address of its own, with its own budget.
                    continue
                roomid = created.json["roomid"]
                self.rooms.append((roomid, False))
                self.tokens.append(token)
                accepted = client().accept(code, joiner, new_token())
                if accepted.status != 200:
                    self.errors[accepted.status] += 1
                    continue
                self.rooms.append((roomid, True))
                client().presence(roomid, joiner)
                self.times.append((start, time.monotonic()))
            except OSError as error:
                self.errors[type(error).__name__] += 1
                time.sleep(0.02)

    def stop(self):
        self.ends = True
        for thread in self.threads:
            thread.join(30)
        assert not any(thread.is_alive() for thread in self.threads)

    @property
    def gaps(self):
        """The times in which no room was made, by their beginning and end."""
        ends = sorted(end for _, end in self.times)
        return list(zip(ends, ends[1:]))

    @property
    def gap(self):
        """The longest of them, seconds."""
        return max((b - a for a, b in self.gaps), default=0)

    def stalled(self, moment):
        """True if machine or database stood still for a second shortly before. Then a sign of life may come later than the broker waits for it."""
        return any(b - a > 1 and a < moment < b + 6 for a, b in self.gaps)

    def p99(self):
        took = sorted(end - start for start, end in self.times)
        return took[len(took) * 99 // 100]


class Watchers:
    """Creators who are always there, with a socket to some node, and joiners who come again and again. Nobody may push to a creator that has been there for
    longer than a lease, unless all stood still."""

    lease = 10.0

    def __init__(self, deployment, rooms=6):
        self.deployment, self.ends, self.collected = deployment, False, deployment.simulator.collected()
        # `wronged` has the moments of such pushes.
        self.since, self.at, self.suspended, self.wronged, self.visits = {}, {}, None, [], Counter()
        client = Client(deployment.leading.port)
        self.rooms = [client.room() for _ in range(rooms)]
        self.threads = [threading.Thread(target=self.stay, args=[room]) for room in self.rooms] + [
            threading.Thread(target=work) for work in (self.visit, self.look)]
        for thread in self.threads:
            thread.start()

    def node(self):
        nodes = [node for node in self.deployment.nodes.values() if node is not self.suspended]
        return random.choice([node for node in nodes if node.running] or nodes)

    def stay(self, room):
        while not self.ends:
            with suppress(OSError, WebSocketException, AssertionError, TimeoutError):
                node = self.node()
                with Socket(node) as socket:
                    socket.join(room.roomid, room.creator.client)
                    self.at[room.creator.token] = node
                    self.since[room.creator.token] = time.monotonic()
                    while not self.ends:
                        with suppress(TimeoutError):
                            socket.receive(timeout=0.2)
            self.since.pop(room.creator.token, None)

    def visit(self):
        while not self.ends:
            with suppress(OSError):
                room = random.choice(self.rooms)
                answer = Client(self.node().port, timeout=5, checked=False).presence(room.roomid, room.joiner.client)
                self.visits[answer.json.get("delivery", answer.status) if answer.status == 202 else answer.status] += 1
            time.sleep(0.2)

    def look(self):
        seen = Counter()
        own = {room.creator.token for room in self.rooms}
        while not self.ends:
            with suppress(OSError):
                now = time.monotonic()
                self.collected.collect()
                count = self.collected.count(own)
                for token in count - seen:
                    there = self.since.get(token)
                    # The sockets of a suspended node are as dead as their node.
                    if there is not None and self.at[token] is not self.suspended and now - there > self.lease + 1:
                        # If this process stood still meanwhile, the push is from that time.
                        self.wronged.append(time.monotonic())
                seen = count
            # Each question is answered with up to 10,000 pushes.
            time.sleep(1)

    def stop(self):
        self.ends = True
        for thread in self.threads:
            thread.join(30)

    def told(self):
        return f"visits {dict(self.visits)}, pushes to somebody present for longer than a lease {len(self.wronged)}"
