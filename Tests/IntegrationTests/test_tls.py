"""The TLS listener as scanners and clients see it, and its flags' errors."""

import json
import socket
import ssl
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from contextlib import ExitStack, suppress
from types import SimpleNamespace

import pytest

from bad_requests import ASK, CODE, request
from certificates import Authority, Certificate, openssl
from http2_frames import START, FramePeer, ask
from listeners import Listeners, accept, fresh
from mayfly import Socket
from peers import Peer
from processes import Broker, State, eventually
from test_startup_errors import start_fails
from world import World


@pytest.fixture(scope="module")
def world():
    listeners = Listeners(["tls"])
    yield listeners
    listeners.close()


@pytest.fixture
def port(world):
    return world.broker("tls").port


# Findings of any certificate made for a test: it is self-signed, can't be revoked, and lives for a month.
OF_THE_TEST = ("cert_", "OCSP", "DNS_CAA", "certificate_transparency", "overall_grade", "scanTime", "engine_problem")


@pytest.mark.campaign
def test_testssl_finds_nothing_weak(port, tmp_path):
    report = tmp_path / "report.json"
    subprocess.run(
        ["testssl", "--quiet", "--color", "0", "--warnings", "off", "--jsonfile", report, "-p", "-s", "-f", "-S", "-U", f"localhost:{port}"],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, timeout=240, check=False)
    findings = json.loads(report.read_text())
    found = {one["id"]: one["finding"] for one in findings}
    weak = [one for one in findings
            if one["severity"] in ("LOW", "MEDIUM", "HIGH", "CRITICAL", "WARN", "FATAL") and not one["id"].startswith(OF_THE_TEST)]
    assert not weak, weak
    for name in ("SSLv2", "SSLv3", "TLS1", "TLS1_1", "cipherlist_NULL", "cipherlist_aNULL", "cipherlist_EXPORT", "cipherlist_LOW"):
        assert "not offered" in found[name], (name, found[name])
    assert found["TLS1_2"] == "offered" and "offered" in found["TLS1_3"]
    for name in ("heartbleed", "CCS", "ticketbleed", "ROBOT", "secure_client_renego", "CRIME_TLS", "POODLE_SSL", "SWEET32",
                 "FREAK", "DROWN", "LOGJAM", "BEAST", "LUCKY13", "RC4"):
        assert name in found, f"testssl did not look at {name}"


def test_sslscan_finds_nothing_weak(port):
    scanned = subprocess.run(
        ["sslscan", "--no-colour", "--xml=-", "--show-sigs", f"localhost:{port}"], capture_output=True, timeout=60, check=True)
    found = ElementTree.fromstring(scanned.stdout).find("ssltest")
    enabled = {(one.get("type"), one.get("version")) for one in found.iter("protocol") if one.get("enabled") != "0"}
    assert enabled == {("tls", "1.2"), ("tls", "1.3")}
    assert found.find("renegotiation").get("supported") == "0"
    assert all(one.get("supported") == "0" for one in found.iter("compression"))
    assert all(one.get("vulnerable") == "0" for one in found.iter("heartbleed"))
    ciphers = list(found.iter("cipher"))
    assert {one.get("sslversion") for one in ciphers} == {"TLSv1.2", "TLSv1.3"}
    for cipher in ciphers:
        name = cipher.get("cipher")
        assert int(cipher.get("bits")) >= 128, name
        assert "GCM" in name or "POLY1305" in name, name
        assert name.startswith(("TLS_", "ECDHE-")), f"{name} keeps no forward secrecy"
        assert cipher.get("strength") in ("strong", "acceptable"), name
        assert int(cipher.get("ecdhebits")) >= 250, name
    groups = list(found.iter("group"))
    assert groups and all(int(group.get("bits")) >= 128 for group in groups)
    signatures = {one.get("name") for one in found.iter("connection-signature-algorithm")}
    assert signatures == {"ecdsa_secp256r1_sha256"}


@pytest.mark.parametrize("offered, agreed", [(["http/1.1", "h2"], "h2"), ([], None)])
def test_the_protocol_is_negotiated(world, port, offered, agreed):
    context = world.certificate.context(*offered)
    if agreed == "h2":
        with FramePeer(port, context) as peer:
            peer.send(START + ask(1))
            assert peer.outcome(1) == "answer 404"
    else:
        with Peer(port, context) as peer:
            assert peer.tls.selected_alpn_protocol() == agreed
            peer.send(ASK)
            assert peer.answer().status == 404


def test_unknown_protocols_are_refused(world, port):
    """RFC 7301 section 3.2: no_application_protocol."""
    with pytest.raises(ssl.SSLError, match="(?i)no.application.protocol"):
        Peer(port, world.certificate.context("spdy/3", "h2c"))


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_no_session_is_resumed(world, port, version):
    """Tickets and session ids would let an observer link a phone's connections."""
    context = world.certificate.context()
    context.minimum_version = context.maximum_version = version
    session = None
    for _ in range(2):
        with socket.create_connection(("127.0.0.1", port), 5) as plain, \
                context.wrap_socket(plain, server_hostname="localhost", session=session) as tls:
            tls.sendall(ASK)
            assert tls.recv(4096).startswith(b"HTTP/1.1 404 ")
            assert not tls.session_reused
            session = tls.session
            assert session is None or not session.has_ticket


def test_a_request_in_one_packet_with_the_end_of_its_handshake_is_answered(world, port):
    """Of a network over its share of a turn: the handshakes wait for their turn, and so does each request that came with one."""
    context = world.certificate.context("http/1.1")
    with ExitStack() as stack:
        other = stack.enter_context(Peer(port, context, source="127.88.0.1"))
        for _ in range(3):
            peers = [stack.enter_context(LatePeer(port, context)) for _ in range(8)]
            # While two networks are active, each has a share.
            other.send(ASK)
            assert other.answer().status == 404
            for peer in peers:
                peer.send_late(ASK)
            assert [peer.answer().status for peer in peers] == [404] * 8


class LatePeer(Peer):
    """Ends its handshake with the first request, in one packet."""

    def __init__(self, port, context):
        super().__init__(port, source="127.66.0.1")
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.incoming, self.outgoing, server_hostname="localhost")
        with suppress(ssl.SSLWantReadError):
            self.tls.do_handshake()
        self._flush()
        done = False
        while not done:
            self.incoming.write(self.socket.recv(65_536))
            with suppress(ssl.SSLWantReadError):
                self.tls.do_handshake()
                done = True

    def send_late(self, data):
        self.tls.write(data)
        self._flush()


def test_a_close_is_announced(world, port):
    """RFC 8446 section 6.1: without close_notify a truncated answer looks whole."""
    with Peer(port, world.certificate.context("http/1.1")) as peer:
        peer.send(ASK.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
        assert peer.answer().status == 404
        assert peer.receive() == b""  # an end without close_notify raises SSLEOFError


def test_close_notify_ends_the_requests(world, port):
    """Without the end of the stream. Earlier requests are answered, and the connection ends."""
    with Peer(port, world.certificate.context("http/1.1")) as peer:
        peer.send(ASK * 3)
        with suppress(ssl.SSLWantReadError):
            peer.tls.unwrap()
        peer.socket.sendall(peer.outgoing.read())
        assert [peer.answer().status for _ in range(3)] == [404] * 3
        assert peer.rest() == b""


def test_websocket(world):
    code = fresh()
    with world.connect("tls") as peer:
        peer.send(request().replace(CODE, code))
        roomid = peer.answer().json["roomid"]
        peer.send(accept(code))
        assert peer.answer().status == 200
    broker = SimpleNamespace(ws_url=f"wss://localhost:{world.broker('tls').port}/ws")
    with Socket(broker, world.certificate.context()) as one, Socket(broker, world.certificate.context()) as other:
        one.join(roomid, "c")
        other.join(roomid, "d")
        one.expect("peer_joined")


def test_plain_text_on_the_tls_port_is_refused(port):
    with Peer(port) as peer:
        peer.send(ASK)
        rest = peer.rest()
        assert rest == b"" or rest[:1] == b"\x15", f"neither nothing nor an alert: {rest}"


@pytest.mark.parametrize("sent", [
    b"\x16\x03\x01\x40\x00" + bytes(16_384), b"\x16\x03\x01\x00\x04\x01\xff\xff\xff", b"\x17\x03\x03\x00\x01\x00", b"\xff" * 1000,
    b"\x80\x2e\x01\x00\x02\x00\x15\x00\x00\x00\x10\x01\x00\x80" + bytes(40)],
    ids=["zeros", "a hello of 16 MB", "data first", "noise", "SSLv2"])
def test_an_absent_handshake_is_closed(world, port, sent):
    with Peer(port) as peer:
        peer.send(sent)
        assert b"HTTP" not in peer.rest()
    with world.connect("tls") as peer:
        peer.send(ASK)
        assert peer.answer().status == 404


def test_key_updates_are_limited(world, port):
    """Each costs as much as a request. A connection has a hundred."""
    client = subprocess.Popen(
        ["openssl", "s_client", "-connect", f"localhost:{port}", "-tls1_3"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL)
    try:
        changes = 0
        while client.poll() is None and changes < 400:
            try:
                # One command a read: `k` changes its own keys.
                client.stdin.write(b"k\n")
                client.stdin.flush()
            except BrokenPipeError:
                break
            changes += 1
            time.sleep(0.01)
        client.wait(5)
        assert 90 < changes < 400, changes
    finally:
        client.kill()
        client.wait()
    with world.connect("tls") as peer:
        peer.send(ASK)
        assert peer.answer().status == 404


# Refused flags.

@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    folder = tmp_path_factory.mktemp("certificates")
    return Certificate(folder), Certificate(folder, "other")


@pytest.fixture
def refuses(state, processes):
    """Starts a broker with these flags. It must end by itself with a helpful error."""
    def check(*words, status=1, **flags):
        broker = Broker(state, **flags)
        processes.append(broker)
        return start_fails(broker, *words, status=status)
    return check


def test_a_certificate_needs_its_key(refuses, certificates):
    one, other = certificates
    refuses("--tls-certificate", "--tls-key", status=2, tls_certificate=one.path)
    refuses("--tls-certificate", "--tls-key", status=2, tls_key=one.key)
    refuses("--tls-client-ca", "--tls-certificate", status=2, tls_client_ca=one.path)


def test_another_certificates_key_is_refused(refuses, certificates):
    one, other = certificates
    refuses(one.path, other.key, tls_certificate=one.path, tls_key=other.key)


def test_bad_certificate_and_key_files_are_refused(refuses, certificates, tmp_path):
    one, other = certificates
    empty, encrypted = tmp_path / "empty.pem", tmp_path / "encrypted.key"
    empty.touch()
    openssl("ec", "-in", one.key, "-aes256", "-passout", "pass:secret", "-out", encrypted)
    for path in (empty, tmp_path / "missing.pem", one.key, tmp_path):
        refuses(path, tls_certificate=path, tls_key=one.key)
    for path in (empty, tmp_path / "missing.key", one.path, encrypted, tmp_path):
        printed = refuses(path, tls_certificate=one.path, tls_key=path)
        assert "PRIVATE" not in printed
    refuses("--tls-client-ca", empty, tls_client_ca=empty, **one.flags)
    refuses("--tls-client-ca", one.key, tls_client_ca=one.key, **one.flags)
    small, small_key = tmp_path / "small.pem", tmp_path / "small.key"
    openssl("req", "-x509", "-newkey", "rsa:1024", "-nodes", "-keyout", small_key, "-out", small, "-subj", "/CN=small.mayfly.test")
    refuses("too small", small, tls_certificate=small, tls_key=small_key)


def test_an_expired_certificate_starts_with_a_warning(state, processes, tmp_path):
    """Old phones' clocks may still accept it."""
    expired = Certificate(tmp_path, days=1)
    broker = Broker(state, **expired.flags)
    processes.append(broker)
    broker.start(clock_offset=2 * 86_400)
    assert "expired" in broker.printed() and str(expired.path) in broker.printed()


def test_cleartext_at_another_address_than_allowed_is_refused(refuses, state):
    refuses("--allow-cleartext", "--tls-certificate", status=2, listen=f"0.0.0.0:{Broker(state).port}", allow_cleartext="10.0.0.5")


# Promise: cleartext-by-name
def test_cleartext_is_served_on_an_allowed_address(state, processes):
    """In a network namespace of its own, which nobody else can reach."""
    broker = Broker(state, listen="10.0.0.5:8787", allow_cleartext="10.0.0.5")
    setup = 'ip link set lo up && ip address add 10.0.0.5/32 dev lo && exec "$@"'
    broker.prefix = ("unshare", "--map-root-user", "--net", "sh", "-c", setup, "sh")
    processes.append(broker)
    broker.start(wait=False)
    eventually(lambda: "ready: apps at 10.0.0.5:8787" in broker.printed(), 15, what="the start")
    enter = ("nsenter", "--target", str(broker.child.pid), "--user", "--net", "--preserve-credentials", "--")
    ask = "from urllib.request import urlopen; print(urlopen('http://10.0.0.5:8787/audit/checkpoint').status)"
    asked = subprocess.run([*enter, sys.executable, "-c", ask], capture_output=True, text=True, timeout=15, check=True)
    assert asked.stdout == "200\n"


def test_unix_domain_sockets_are_served(refuses, state, processes, tmp_path):
    path = tmp_path / "apps.sock"
    first = Broker(state, listen=f"unix:{path}")
    processes.append(first)
    first.start()
    assert path.stat().st_mode & 0o777 == 0o660
    with Peer(path) as peer:
        peer.send(ASK)
        assert peer.answer().status == 404
    second = State()
    try:
        broker = Broker(second, listen=f"unix:{path}")
        processes.append(broker)
        start_fails(broker, path)  # a living process has it
        with Peer(path) as peer:
            peer.send(ASK)
            assert peer.answer().status == 404
        first.kill()
        assert path.exists()
        broker.start()  # it was left behind by a dead one
        with Peer(path) as peer:
            peer.send(ASK)
            assert peer.answer().status == 404
        assert broker.stop() == 0 and not path.exists()
        path.write_text("a file of somebody's")
        start_fails(broker, path)
        assert path.read_text() == "a file of somebody's"
    finally:
        second.remove()


# A listener that asks for client certificates serves only those of its authority.

@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    folder = tmp_path_factory.mktemp("authority")
    server, authority = Certificate(folder), Authority(folder, "backends")
    with World(apns=False, tls_client_ca=authority.path, **server.flags) as world:
        yield world, server, authority, folder


def curl_status(world, server, *arguments):
    """The status that curl prints, or 000 without an answer."""
    done = subprocess.run(
        ["curl", "--silent", "--output", "/dev/null", "--write-out", "%{http_code} %{http_version}", "--cacert", server.path, *arguments,
         f"https://localhost:{world.broker.port}/audit/checkpoint", "--max-time", "10"], capture_output=True, text=True, timeout=20)
    return done.stdout


@pytest.mark.parametrize("version", ["2", "1.1"])
@pytest.mark.parametrize("tls", ["1.2", "1.3"])
def test_a_client_certificate_of_the_authority_is_served(guarded, version, tls):
    world, server, authority, _ = guarded
    path, key = authority.issue("backend")
    assert curl_status(world, server, "--cert", path, "--key", key, f"--http{version}", f"--tlsv{tls}", "--tls-max", tls) == f"200 {version}"


def test_a_client_without_certificate_is_refused(guarded):
    world, server, _, _ = guarded
    assert curl_status(world, server).startswith("000")


def test_a_client_certificate_of_another_authority_is_refused(guarded):
    world, server, _, folder = guarded
    path, key = Authority(folder, "others").issue("stranger")
    assert curl_status(world, server, "--cert", path, "--key", key).startswith("000")


def test_an_expired_client_certificate_is_refused(guarded):
    world, server, authority, _ = guarded
    path, key = authority.issue("late", days=-1)
    assert curl_status(world, server, "--cert", path, "--key", key).startswith("000")


def test_the_handshake_names_the_authority(guarded):
    world, server, _, _ = guarded
    asked = subprocess.run(
        ["openssl", "s_client", "-connect", f"localhost:{world.broker.port}", "-CAfile", server.path],
        input="", capture_output=True, text=True, timeout=20)
    assert "CN = backends.mayfly.test" in asked.stdout
