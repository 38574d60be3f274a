"""The way to Apple through Debian's tinyproxy, and through proxies that fail. Only the proxy resolves Apple's names."""

import base64
import re
import signal
import socket
import subprocess
import tempfile
import threading
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex

import pytest

from apns_recorder import APNsRecorder
from certificates import openssl
from mayfly import Client, new_client, new_code, new_token, other_address
from preload import library
from processes import BUNDLE_ID, REPOSITORY, Broker, clean_environment, eventually, free_port, mayfly
from test_apns_port import HOSTS, apple, keys  # noqa: F401

USER = "mayfly"
CONFIGURATION = """
Port {port}
Listen 127.0.0.1
Timeout 20
MaxClients 50
LogLevel Critical
LogFile "{folder}/tinyproxy.log"
PidFile "{folder}/tinyproxy.pid"
ConnectPort {allowed}
"""


class Tinyproxy:
    """It resolves names as the process that `names` is the environment of."""

    def __init__(self, names, password=None, allowed=2197, port=None):
        self.names, self.password, self.allowed, self.port = names, password, allowed, port or free_port()

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="mayfly-tinyproxy-")
        path = Path(self.folder.name, "tinyproxy.conf")
        login = f"BasicAuth {USER} {self.password}\n" if self.password else ""
        path.write_text(CONFIGURATION.format(port=self.port, folder=self.folder.name, allowed=self.allowed) + login)
        self.child = subprocess.Popen(
            [REPOSITORY / ".build/tinyproxy", "-d", "-c", path], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            env=clean_environment(LD_PRELOAD=self.names["LD_PRELOAD"], TEST_NAMES=self.names["TEST_NAMES"]))
        eventually(self.listens, 10)
        return self

    def listens(self):
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def __exit__(self, *_):
        self.child.terminate()
        self.child.wait(10)
        self.folder.cleanup()


@contextmanager
def hanging():
    """A proxy that takes a request and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        taken = []

        def accept():
            try:
                while True:
                    taken.append(listener.accept()[0])
            except OSError:
                pass
        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(5)
            for connection in taken:
                connection.close()


@pytest.fixture
def password(tmp_path):
    """A password's file, with its text as `text`."""
    path = tmp_path / "proxy.password"
    path.write_text(token_hex(16) + "\nmore\n")
    path.chmod(0o600)
    return path


def text(path):
    return path.read_text().splitlines()[0]


def settings(apple, state, proxy, password=None):  # noqa: F811
    """The environment of a process that knows none of Apple's names itself."""
    _, names = apple
    login = {"MAYFLY_APNS_PROXY": f"{USER}@127.0.0.1:{proxy}", "MAYFLY_APNS_PROXY_PASSWORD": password} if password else {
        "MAYFLY_APNS_PROXY": f"127.0.0.1:{proxy}"}
    return {"MAYFLY_STATE": state.folder, "MAYFLY_APNS_PORT": 2197, "MAYFLY_APNS_CA": names["MAYFLY_APNS_CA"], **keys(state), **login}


def hides(ran, *secrets):
    printed = ran if isinstance(ran, str) else ran.stdout + ran.stderr
    return not [secret for secret in secrets if secret in printed or base64.b64encode(f"{USER}:{secret}".encode()).decode() in printed]


@pytest.mark.parametrize("has_password", [False, True])
def test_check_goes_through_the_proxy(apple, state, password, has_password):  # noqa: F811
    recorders, names = apple
    with Tinyproxy(names, text(password) if has_password else None) as proxy:
        ran = mayfly("apns", "check", **settings(apple, state, proxy.port, password if has_password else None))
        assert ran.returncode == 0 and ran.stdout.count(": good\n") == 2 and hides(ran, text(password)), ran
        for name, recorder in recorders.items():
            assert recorder.request(1)[":authority"] == HOSTS[name] + ":2197"


def test_the_start_check_names_the_proxy(apple, state):  # noqa: F811
    recorders, names = apple
    with Tinyproxy(names) as proxy:
        ran = mayfly("check", **settings(apple, state, proxy.port))
        assert "Apple accepts key or certificate, and topic, through the proxy" in ran.stdout, ran
    for recorder in recorders.values():
        recorder.request(1)


def test_a_refusal_names_its_cause(apple, state, password):  # noqa: F811
    """Each is of the real proxy: a wrong password, none, a port that it forbids, nobody behind it, and no proxy at all."""
    recorders, names = apple
    nowhere = names | {"TEST_NAMES": ",".join(f"{name}={other_address()}" for name in HOSTS.values())}

    def cause(ran, said):
        assert ran.returncode == 1 and "unknown\n" in ran.stdout and said in ran.stdout, ran
        assert hides(ran, text(password)) and "127.0.0." not in ran.stdout + ran.stderr and "--apns-proxy (MAYFLY_APNS_PROXY)" in ran.stdout, ran
    with Tinyproxy(names, token_hex(16)) as proxy:
        cause(mayfly("apns", "check", **settings(apple, state, proxy.port, password)), "requires a user and password, or refuses those")
        cause(mayfly("apns", "check", **settings(apple, state, proxy.port)), "(407)")
    with Tinyproxy(names, allowed=443) as proxy:
        cause(mayfly("apns", "check", **settings(apple, state, proxy.port)), "the proxy forbids the connection (403)")
    with Tinyproxy(nowhere) as proxy:
        cause(mayfly("apns", "check", **settings(apple, state, proxy.port)), "the proxy can't connect (5")
    cause(mayfly("apns", "check", **settings(apple, state, free_port())), "the proxy can't be reached (connect: Connection refused)")
    assert all(recorder.requests.empty() for recorder in recorders.values())


@pytest.mark.background
def test_a_proxy_that_hangs_is_given_up(world):
    with hanging() as port:
        ran = mayfly(
            "apns", "check", timeout=60, MAYFLY_STATE=world.state.folder, MAYFLY_APNS_ENDPOINT=f"127.0.0.1:{world.simulator.port}",
            MAYFLY_APNS_CA=world.state / "keys/simulator-ca.pem", MAYFLY_APNS_PROXY=f"127.0.0.1:{port}", **keys(world.state))
    assert ran.returncode == 1 and "the proxy did not open a connection in time" in ran.stdout, ran


def test_tls_in_the_tunnel_verifies_apples_name(apple, state, tmp_path):  # noqa: F811
    """A server with a trusted certificate for another name, as a relay or a proxy that opens TLS has, gets no push."""
    recorders, names = apple
    certificate, key, both = (tmp_path / f"relay.{end}" for end in ("crt", "key", "pem"))
    openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", key, "-out", certificate,
            "-days", 30, "-subj", "/CN=relay.mayfly.test", "-addext", "subjectAltName=DNS:relay.mayfly.test")
    both.write_bytes(certificate.read_bytes() + key.read_bytes())
    address = other_address()
    relay = names | {"TEST_NAMES": ",".join(f"{name}={address}" for name in HOSTS.values())}
    with APNsRecorder(both, (address, 2197), 200) as recorder, Tinyproxy(relay) as proxy:
        ran = mayfly("apns", "check", **settings(apple, state, proxy.port) | {"MAYFLY_APNS_CA": certificate})
        assert ran.returncode == 1 and re.search("cause  .*name", ran.stdout), ran
        assert recorder.requests.empty()
        # Trusted or not: the way through is open.
        ran = mayfly("apns", "check", **settings(apple, state, proxy.port))
        assert ran.returncode == 1 and re.search("cause  .*certificate", ran.stdout) and recorder.requests.empty(), ran


def knock(broker, environment="production"):
    client = Client(broker.port)
    code, joiner, token = new_code(), new_client(), new_token()
    room = client.create(code, token=token, environment=environment).expect(201).json
    client.accept(code, joiner).expect(200)
    assert client.presence(room["roomid"], joiner).expect(202).json["delivery"] == "queued"
    return token


def test_a_broker_pushes_through_the_proxy_and_reads_its_password_again(apple, state, processes, password):  # noqa: F811
    recorders, names = apple
    recorder, first, second = recorders["production"], text(password), token_hex(16)
    with Tinyproxy(names, first) as proxy:
        broker = Broker(state, apns_endpoint=None, apns_ca=None, apns_key_path=None, apns_key_id=None, apns_team_id=None, apns_bundle_id=None)
        processes.append(broker.start(**settings(apple, state, proxy.port, password)))
        token = knock(broker)
        assert recorder.request(5)[":path"] == f"/3/device/{token}"
        # A password that the proxy refuses changes nothing.
        password.write_text(second + "\n")
        broker.child.send_signal(signal.SIGHUP)
        eventually(lambda: "could not check the new credentials" in broker.printed(), 20)
        token = knock(broker)
        assert recorder.request(5)[":path"] == f"/3/device/{token}"
    with Tinyproxy(names, second, port=proxy.port):
        broker.child.send_signal(signal.SIGHUP)
        eventually(lambda: "new pushes use the new credentials" in broker.printed(), 20)
        while not recorder.requests.empty():
            recorder.request(1)
        token = knock(broker)
        assert recorder.request(5)[":path"] == f"/3/device/{token}"
    printed = broker.printed()
    assert "the proxy requires a user and password, or refuses those" in printed and hides(printed, first, second), printed
    for recorder in recorders.values():
        while not recorder.requests.empty():
            recorder.request(1)


def test_bad_settings_are_refused(state, password):
    """None is printed: each may have a password in it."""
    for value in ("proxy", "proxy:", ":3128", "proxy:0", "proxy:99999", "https://proxy:3128", "socks5://proxy:1080", "http://proxy:3128/x", "@proxy:1",
                  "unix:/run/proxy", "pro xy:3128"):
        ran = mayfly("apns", "check", f"--apns-proxy={value}", **keys(state))
        assert ran.returncode == 2 and "--apns-proxy (MAYFLY_APNS_PROXY) must be HOST:PORT or USER@HOST:PORT" in ran.stderr, (value, ran)
    ran = mayfly("apns", "check", "--apns-proxy=http://user:Tr0ub4dor@proxy:3128", **keys(state))
    assert ran.returncode == 2 and "must not contain a password" in ran.stderr and "Tr0ub4dor" not in ran.stderr, ran
    for given in ({"MAYFLY_APNS_PROXY": "user@proxy:1"}, {"MAYFLY_APNS_PROXY": "proxy:1", "MAYFLY_APNS_PROXY_PASSWORD": password},
                  {"MAYFLY_APNS_PROXY_PASSWORD": password}):
        ran = mayfly("apns", "check", **given, **keys(state))
        assert ran.returncode == 2 and "--apns-proxy-password (MAYFLY_APNS_PROXY_PASSWORD)" in ran.stderr, ran
    named = {"MAYFLY_APNS_PROXY": "user@proxy:1", "MAYFLY_APNS_PROXY_PASSWORD": password}
    for content, said in (("", "must have a password"), ("\npassword", "must have a password"), ("a\tb", "control"), ("x" * 128, "too long")):
        password.write_text(content)
        ran = mayfly("apns", "check", **named, **keys(state))
        assert ran.returncode == 1 and said in ran.stderr and "xxx" not in ran.stderr, (content, ran)
    password.write_text("x\n")
    password.chmod(0o644)
    said = "--apns-proxy-password (MAYFLY_APNS_PROXY_PASSWORD): other users can read the file named there, the proxy's password"
    assert said in mayfly("check", "--offline", **named, **keys(state)).stdout


def test_a_variable_of_other_programs_only_warns(apple, state):  # noqa: F811
    recorders, names = apple
    given = {"MAYFLY_STATE": state.folder, "MAYFLY_APNS_PORT": 2197, **keys(state), **names}
    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"):
        ran = mayfly("apns", "check", **given, **{name: "http://user:Tr0ub4dor@127.0.0.1:1"})
        assert ran.returncode == 0 and ran.stdout.count(": good\n") == 2, ran
        assert ran.stderr.count(f"{name} is set, but Mayfly doesn't use it") == 1 and "Tr0ub4dor" not in ran.stderr, ran
        for recorder in recorders.values():
            recorder.request(1)
    ran = mayfly("check", "--offline", **given, HTTPS_PROXY="http://127.0.0.1:1")
    assert "HTTPS_PROXY is set" in ran.stdout, ran
    # A simulator needs no proxy, and the setting answers the question.
    for more in ({"MAYFLY_APNS_PORT": "", "MAYFLY_APNS_ENDPOINT": "127.0.0.1:9"}, {"MAYFLY_APNS_PROXY": "127.0.0.1:9"}):
        assert "HTTPS_PROXY" not in mayfly("check", "--offline", **given | more, HTTPS_PROXY="http://127.0.0.1:1").stdout
