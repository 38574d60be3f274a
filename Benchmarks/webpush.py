"""Web Push: the cost of a message beside a bare loop of its cryptography and beside pywebpush, its effect on pushes to Apple, and hosts that hang. `make bench
AGAINST=folder` also measures what a deployment without it pays, beside another build."""

import base64
import contextlib
import http.client
import json
import socket
import subprocess
import threading
import time
from datetime import datetime
from functools import partial

import load
import machine
import pairs
from bystander import Bystander
from courier import PYTHON_STREAMS, STREAMS, Mayfly, Python, child, knock_round
from knocks import Knocks
from machine import LOAD_CPU, REPOSITORY, size
from page import Aim, Section, Series, table
from processes import BOTH_CORES, HERE, MAYFLY, MAYFLY_BENCH, ONE_CORE, WORK, Broker, Invalid, Simulator, builds, folder, throwaway_keys
from shares import p99
from steady import Connections, post
from users import back_end, jwt, read, user

TITLE = "Web Push"
# A browser maker's, so that the limits of strangers' hosts don't hold.
SERVICE = "updates.push.services.mozilla.com"
# Below it are strangers' hosts.
HANGING = "hanging.example"
SUBSCRIPTIONS = 256
# Messages a second beside knocks at phones with Apple's tokens: events of so many printers in turn, each with so many browsers.
MESSAGES, PRINTERS, EACH = size(5_000, 200), size(100, 10), size(50, 10)
KNOCKS, PHONES = 200, size(2_000, 400)
HOSTS, BYSTANDER = size(10_000, 500), 150
# RFC 8291, 5.
KEYS = {"p256dh": "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4", "auth": "BTBZMqHH6r4Tts7J_aSIgg"}


def run(rounds, seconds, note):
    section, aims, others = Section(TITLE), [], []
    _clients(section, aims, others, rounds, seconds, note)
    _beside(section, aims, others, rounds, seconds, note)
    _hosts(section, aims, rounds, seconds, note)
    _size(section, aims, others, rounds, seconds, note)
    if machine.against:
        _without(section, aims, others, rounds, seconds, note)
    section.disturbance(others)
    # In the section itself, so that the page of a run without it can keep the section as it is.
    section.parts.insert(0, table(["figure", "aim", "measured", "reached"], [aim.row() for aim in aims]))
    return section


# MARK: A broker that sends Web Push

def _names():
    """The words of a program that runs another one, for which the names here are this machine."""
    library = WORK / "names.so"
    if not library.exists():
        source = REPOSITORY / "Tests/IntegrationTests/names.c"
        subprocess.run(["cc", "-shared", "-fPIC", "-O2", "-o", library, source, "-ldl"], check=True)
    return ["env", f"LD_PRELOAD={library}", f"TEST_NAMES={SERVICE}=127.0.0.1,*.{HANGING}=127.0.0.1"]


class _Deployment:
    """Keys and settings of a broker that sends Web Push to `SERVICE` and to hosts below `HANGING`, both on this machine. The simulator's certificate
    is also valid for the service."""

    def __init__(self, name, silent=9):
        self.state = state = folder(name)
        throwaway_keys(state)
        both, self.authority, key = state / "keys/simulator.pem", state / "keys/simulator-ca.pem", state / "service.key"
        subprocess.run([
            "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", key, "-out", self.authority,
            "-days", "30", "-subj", "/CN=push.bench", "-addext", f"subjectAltName=DNS:{SERVICE},DNS:localhost,IP:127.0.0.1"],
            check=True, capture_output=True)
        both.write_bytes(self.authority.read_bytes() + key.read_bytes())
        self.simulator, self.silent = Simulator(f"{name}-service", state, {LOAD_CPU}), silent
        self.vapid, hosts = state / "vapid.pem", state / "hosts"
        hosts.write_text(f"{SERVICE}:{self.simulator.port} private ca {self.authority}\n*.{HANGING}:{silent} private\n")
        # It prints the public key.
        self.key = self._mayfly("push", "keys", self.vapid).split("Browsers subscribe with ")[1].split()[0]
        self.settings = [
            "--vapid-key", self.vapid, "--vapid-contact", "mailto:ops@chat.example", "--web-origin", "https://app.example", "--web-push-hosts", hosts]
        self._mayfly("push", "enable", "--state", state, *self.settings)

    @staticmethod
    def _mayfly(*words):
        return subprocess.run([str(word) for word in (MAYFLY, *words)], check=True, capture_output=True, text=True).stdout

    def broker(self, name, **settings):
        return Broker(name, state=self.state, under=_names(), more=self.settings, **settings)

    def subscribe(self, count, host=SERVICE):
        """Subscriptions at the simulator, as browsers write them."""
        control, found = http.client.HTTPConnection("127.0.0.1", self.simulator.control_port), []
        for _ in range(count):
            control.request("POST", "/subscriptions", json.dumps({
                "dialect": "mozilla", "applicationServerKey": self.key, "origin": f"https://{host}:{self.simulator.port}"}))
            found.append(json.loads(control.getresponse().read()))
        control.close()
        return found


# MARK: The cost of a message

class _Messages:
    """Programs that encrypt messages and send none."""

    messages = size(20_000, 2_000)

    def __init__(self, told, command, seconds_of):
        self.told, self.command, self.seconds_of = told, command, seconds_of

    def prepare(self, _):
        """Needs nothing: it has no warm-up, and its rate doesn't depend on another program."""

    def run(self):
        return None, self.seconds_of(child(self.command(self.messages))[0]) / self.messages


def _loop():
    program = WORK / "webpush"
    subprocess.run(["cc", "-O2", "-o", program, HERE / "webpush.c", "-lcrypto"], check=True)
    point, auth = (base64.urlsafe_b64decode(f"{KEYS[key]}==").hex() for key in ("p256dh", "auth"))
    return _Messages("bare C loop of the cryptography", lambda count: [program, count, point, auth], lambda told: float(told.split()[0]))


class _Courier(Mayfly):
    """`mayfly-bench courier` with subscriptions, which keeps the account of itself after 2,000 messages."""

    def __init__(self, deployment):
        lines = deployment.state / "subscriptions"
        lines.write_text("".join(
            f"{one['endpoint']} {one['keys']['p256dh']} {one['keys']['auth']}\n" for one in deployment.subscribe(SUBSCRIPTIONS)))
        self.command = [
            *_names(), MAYFLY_BENCH, "courier", "--subscriptions", lines, "--ca", deployment.authority, "--key", deployment.vapid, "--in-flight",
            STREAMS, "--pushes"]
        self.pushes = size(5_000, 2_000)


def _clients(section, aims, others, rounds, seconds, note):
    deployment = _Deployment("webpush-clients")
    (deployment.state / "subscriptions.json").write_text(json.dumps(deployment.subscribe(SUBSCRIPTIONS, "localhost")))
    bare = _loop()
    alone = _Messages("Mayfly's encryption alone", lambda count: [MAYFLY_BENCH, "messages", "--messages", count],
                      lambda told: json.loads(told)["cpuSeconds"])
    mine, rival = _Courier(deployment), Python("pywebpush", deployment.simulator.port, deployment.state)
    rival.told += ", asynchronous"
    measures = [mine, alone, bare, rival]
    figures = {measure: {"rate": Series(), "cpu": Series()} for measure in measures}
    for measure in measures:
        load.valid(measure.prepare, seconds)
    for turn in range(rounds):
        for measure in measures:
            note(f"webpush: round {turn + 1}, {measure.told}")
            watch = load.Watch(deployment.simulator)
            rate, cpu = load.valid(measure.run)
            others.append(watch.end()[1])
            figures[measure]["cpu"].add(cpu * 1e6)
            if rate is not None:
                figures[measure]["rate"].add(rate)
    deployment.simulator.stop()

    cost = {measure: figures[measure]["cpu"] for measure in measures}
    section.parts.append("### The cost of a message")
    section.text(f"""
        Clients on one core push to {SUBSCRIPTIONS} browsers of `mayfly apns-simulator` on the other. The courier has {STREAMS:,} messages under way and
        HTTP/2, pywebpush {PYTHON_STREAMS} and HTTP/1.1. pywebpush signs its VAPID token once here, and pads no text. The courier's figure is its whole
        way from a message to its answer: encryption, HTTP/2, TLS and the system's calls, without the broker's store and log. The **bare loop** makes
        a key of P-256, derives the keys and encrypts the same 1,127 bytes (`Benchmarks/webpush.c`).
        """)
    section.table(["", "messages a second", "CPU µs a message", "÷ the bare loop", "courier's messages a CPU second ÷ this"], [
        [measure.told, figures[measure]["rate"] if figures[measure]["rate"].values else "", cost[measure],
         "" if measure is bare else cost[measure].over(cost[bare]), "" if measure is mine else cost[measure].over(cost[mine])]
        for measure in measures])
    aims += [
        Aim("CPU of a message, the courier's whole way ÷ that of a bare C loop of its cryptography", 1.25, cost[mine].over(cost[bare]), at_most=True),
        Aim("CPU of a message, encryption alone ÷ that of the same loop", 1.25, cost[alone].over(cost[bare]), at_most=True),
        Aim("courier's messages a CPU second ÷ pywebpush's", 4, cost[rival].over(cost[mine]))]


# MARK: Beside pushes to Apple

def _beside(section, aims, others, rounds, seconds, note):
    deployment = _Deployment("webpush-beside")
    apns = Simulator("webpush-apns", deployment.state, {LOAD_CPU})
    broker = deployment.broker("webpush-broker", cpus=BOTH_CORES, apns_port=apns.port, users=True, kind="monitor")
    note(f"webpush: {PRINTERS * EACH:,} browsers, {PHONES:,} rooms")
    _register(deployment, broker)
    knocks = Knocks(broker.port, PHONES)
    knocks.knock(KNOCKS, KNOCKS)
    broker.settle()
    found, answered, reached = {False: {}, True: {}}, {False: {}, True: {}}, Series()
    for turn in range(rounds):
        for beside in (False, True):
            note(f"webpush: round {turn + 1}, {KNOCKS} knocks a second{f' beside {MESSAGES:,} messages' if beside else ''}")
            watch = load.Watch(broker, apns, deployment.simulator, knocks.process)
            with _events(deployment, broker, seconds, reached) if beside else contextlib.nullcontext():
                load.valid(knock_round, apns, knocks, seconds, found[beside], answered[beside], KNOCKS)
            others.append(watch.end()[1])
            broker.settle()
    for process in (knocks, broker, apns, deployment.simulator):
        process.stop()

    section.parts.append("### Beside pushes to Apple")
    section.text(f"""
        {KNOCKS} knocks a second at phones, with and without events for browsers, {MESSAGES:,} messages a second: those of {PRINTERS} printers with {EACH}
        browsers each. A push is taken when the simulator has it. The broker, both simulators and the load share the two cores.
        """)
    section.table(["from a knock to its push, ms", "p50", "p99", "messages a second"], [
        [told, found[beside][0.5], found[beside][0.99], reached if beside else ""]
        for beside, told in ((False, "alone"), (True, "beside messages to browsers"))])
    aims.append(Aim(
        f"p99 from a knock to APNs, beside {MESSAGES:,} messages a second to browsers", 3, found[True][0.99], at_most=True, unit="ms"))


def _register(deployment, broker):
    secret, browsers = read(broker.secret), deployment.subscribe(PRINTERS * EACH)
    registered = (
        (None, post("/api/devices/register", {"apnsToken": one, "printerPrefix": f"printer-{at % PRINTERS}"}, jwt(secret, user(at))))
        for at, one in enumerate(browsers))
    for asked in Connections(broker.port).ask(registered):
        if asked.status not in (200, 201):
            raise Invalid(f"{asked.status} {asked.body!r}")


@contextlib.contextmanager
def _events(deployment, broker, seconds, reached):
    """Sends events at the rate for so many seconds, beside what is done inside, and notes the rate of the messages at the service."""
    deployment.simulator.forget()
    asking, rate, wrong = back_end(read(broker.secret)), MESSAGES / EACH, []
    events = (
        (None, post(f"/api/monitors/printer-{at % PRINTERS}/status", {"oldStatus": "idle", "newStatus": "running"}, asking))
        for at in range(int(rate * seconds)))

    def send():
        for asked in Connections(broker.port, count=16).ask(events, rate):
            if asked.status != 202 or json.loads(asked.body)["pushes"] != EACH:
                wrong.append((asked.status, asked.body))

    sender = threading.Thread(target=send)
    sender.start()
    try:
        yield
    finally:
        sender.join()
    if wrong:
        raise Invalid(f"{len(wrong)} events were not taken: {wrong[0]}")
    broker.settle()
    # The latest 10,000.
    at = sorted(datetime.fromisoformat(one["at"]).timestamp() for one in deployment.simulator.pushes())
    reached.add((len(at) - 1) / (at[-1] - at[0]))


# MARK: Hosts that hang

def _hosts(section, aims, rounds, seconds, note):
    without, beside, lost = Series(), Series(), 0
    for turn in range(rounds):
        # Connections to it open, and nothing ever comes.
        with socket.create_server(("127.0.0.1", 0), backlog=4096) as silent:
            deployment = _Deployment("webpush-hosts", silent.getsockname()[1])
            apns = Simulator("webpush-hosts-apns", deployment.state, {LOAD_CPU})
            broker = deployment.broker("webpush-hosts", apns_port=apns.port)
            note(f"webpush: round {turn + 1}, {HOSTS:,} hosts that hang")
            endpoint = f"https://h{{}}.{HANGING}:{deployment.silent}/push"
            knocks = Knocks(broker.port, HOSTS, {"endpoint": endpoint, "keys": KEYS})
            before = Bystander(broker.port, BYSTANDER, seconds + 1).end()
            seen = knocks.knock(HOSTS)
            if any(came != "queued" for *_, came in seen):
                raise Invalid("a knock was not queued")
            during = Bystander(broker.port, BYSTANDER, seconds + 1).end()
            if (left := _jobs(broker)) < HOSTS:
                raise Invalid(f"only {left} of {HOSTS} messages wait")
            lost += _lost(apns, {token for _, _, token, came in before + during if came == "queued"})
            without.add(p99(before))
            beside.add(p99(during))
            for process in (knocks, broker, apns, deployment.simulator):
                process.stop()

    section.parts.append("### Hosts that hang")
    section.text(f"""
        A bystander creates and accepts rooms and knocks at phones, {BYSTANDER} requests a second, before and while messages wait for {HOSTS:,} hosts of
        strangers, which take connections and never answer. Pushes to Apple of the bystander that didn't arrive: {lost}.
        """)
    section.table(["bystander's p99, ms", "before", "meanwhile", "ratio"], [["", without, beside, beside.over(without)]])
    aims.append(Aim(f"bystander's p99 beside {HOSTS:,} hosts that hang ÷ without", 1.5, beside.over(without), at_most=True))


def _lost(apns, tokens):
    """How many of these phones get no push. A knock soon after an accept is pushed a little later."""
    end = time.monotonic() + 10
    while (lost := len(tokens - {one["token"] for one in apns.pushes()})) and time.monotonic() < end:
        time.sleep(0.2)
    return lost


def _jobs(broker):
    with broker.database() as database:
        return database.execute("SELECT count(*) FROM job").fetchone()[0]


# MARK: The size of addresses

def _size(section, aims, others, rounds, seconds, note):
    def enabled(cpus):
        deployment = _Deployment("webpush-pairs")
        deployment.simulator.stop()
        return deployment.broker("webpush-pairs", cpus=cpus)

    kinds = {"addresses of Apple alone": partial(Broker, "webpush-apple-pairs"), "of all services": enabled}
    figures = _pairs(kinds, others, rounds, seconds, note)
    short, long = (figures[name] for name in kinds)
    section.parts.append("### The size of addresses")
    section.text("""
        Creates and accepts with Apple's tokens, as in [Create + accept pairs](#create--accept-pairs), before and after `mayfly push enable`.
        """)
    section.table(["", "pairs a second", "CPU µs a pair", "bytes of a row"], [[name, *figures[name]] for name in kinds])
    aims += [Aim("pairs a second with addresses of all services ÷ of Apple alone", 0.8, long[0].over(short[0]))]


def _pairs(kinds, others, rounds, seconds, note):
    """{name: (pairs a second, CPU µs a pair, bytes of a token's row)}"""
    figures = {name: (Series(), Series(), Series()) for name in kinds}
    for turn in range(rounds):
        for name, start in kinds.items():
            note(f"webpush: round {turn + 1}, pairs, {name}")
            started = []

            def kept(cpus, start=start, started=started):
                started.append(start(cpus=cpus))
                return started[-1]

            (rate, cpu), _, _ = load.valid(pairs.serve, kept, ONE_CORE, seconds, others)
            for series, value in zip(figures[name], (rate, cpu, _row(started[-1])), strict=True):
                series.add(value)
    return figures


def _row(broker):
    """The bytes of a token's row."""
    with broker.database() as database:
        return database.execute("SELECT sum(payload) * 1.0 / (SELECT count(*) FROM token) FROM dbstat WHERE name = 'token'").fetchone()[0]


# MARK: A deployment without Web Push, beside another build

def _without(section, aims, others, rounds, seconds, note):
    state = folder("webpush-against")
    throwaway_keys(state)
    simulator = Simulator("webpush-against-apns", state, {LOAD_CPU})
    couriers = {name: Mayfly(simulator.port, state, programs) for name, programs in builds().items()}
    pushes = {name: Series() for name in couriers}
    for measure in couriers.values():
        load.valid(measure.prepare, seconds)
    for turn in range(rounds):
        for name, measure in couriers.items():
            note(f"webpush: round {turn + 1}, pushes to Apple, {name}")
            watch = load.Watch(simulator)
            pushes[name].add(load.valid(measure.run)[1] * 1e6)
            others.append(watch.end()[1])
    simulator.stop()
    figures = _pairs({name: partial(Broker, "webpush-against-pairs", programs=programs) for name, programs in builds().items()},
                     others, rounds, seconds, note)
    mine, other = pushes
    section.parts.append("### A deployment without Web Push")
    section.text("Builds in turn, with Apple's service alone. `Benchmarks/instructions.py` of both counts more exactly.")
    section.table(["", "CPU µs a push to Apple", "CPU µs a pair", "bytes of a row"], [[name, pushes[name], *figures[name][1:]] for name in pushes])
    aims += [
        Aim(f"{told} ÷ that of {other}", 1.03, mine_of.over(other_of), at_most=True) for told, mine_of, other_of in (
            ("CPU of a push to Apple", pushes[mine], pushes[other]), ("CPU of a pair", figures[mine][1], figures[other][1]),
            ("bytes of a row", figures[mine][2], figures[other][2]))]
