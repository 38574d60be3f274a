"""A JWK set at the login's https URL: faults of its server, rotation, and callers who send unknown keys."""

import signal
import subprocess
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from companion_client import Caller, SessionSocket
from companion_world import ROUTES
from jwk_server import KeyServer, answer, certificate, drip, endless, interim
from login import AUDIENCE, ISSUER, Login
from mayfly import Client
from preload import library
from processes import BINARY, Broker, clean_environment, eventually, mayfly
from test_check import check_all
from test_jwt import verify
from world import World

UNREAD = "the JWK set can't be read"


@pytest.fixture(scope="module")
def login():
    return Login("RS256")


@pytest.fixture(scope="module")
def renewed():
    return Login("RS256", "renewed")


@contextmanager
def served(server, wait=True, apns=False, **environment):
    """A broker that reads the server's set. Its certificate is trusted as the system's authorities are."""
    with World(apns=apns, start=False) as world:
        world.broker.options |= {
            "policy": "rooms,companion", "jwt-algorithm": "RS256", "jwt-key": None, "jwt-jwks": server.url, "jwt-issuer": ISSUER,
            "jwt-audience": AUDIENCE}
        world.trust = {"SSL_CERT_FILE": server.path, "SSL_CERT_DIR": "/nonexistent"} | environment
        world.broker.start(**world.trust)
        if wait:
            told(world, "jwt: one key for RS256 from the URL")
        yield world
        assert "secret-tenant" not in world.broker.printed(), "the URL's query may be a secret"


@contextmanager
def status_of(world):
    caller = Caller(world.broker, None, timeout=30)
    yield lambda token: caller.call("GET", "/api/push/status", bearer=token)
    caller.close()


def told(world, text, times=1):
    eventually(lambda: world.broker.printed().count(text) >= times, 60, what=f"{times} times {text!r}")


def ready(world):
    with urllib.request.urlopen(f"{world.broker.operator_url}/readyz", timeout=5) as answer:
        return answer.read().decode()


def rooms_work(world):
    client = Client(world.broker.port)
    client.room()
    client.close()


def hang_up(world):
    world.broker.child.send_signal(signal.SIGHUP)


def test_without_a_set_account_calls_are_503_and_rooms_serve(tmp_path, login):
    with KeyServer(certificate(tmp_path, "login"), login.jwk()) as server:
        server.close()
        with served(server, wait=False) as world:
            told(world, f"error: jwt: no keys yet: {UNREAD}")
            rooms_work(world)
            for method, path, body in ROUTES:
                for token in (None, login.token(), "no JWT", login.token(exp=1)):
                    caller = Caller(world.broker, token)
                    refused = caller.call(method, path, body).expect(503, "jwt_keys_unavailable")
                    assert int(refused.headers["retry-after"]) > 0 and "www-authenticate" not in refused.headers
                    caller.close()
            with SessionSocket(world.broker) as socket:
                socket.send({"type": "auth", "token": login.token()})
                assert socket.expect("error")["code"] == "jwt_keys_unavailable"
                # The client should come again, and its user needn't log in again.
                assert socket.closed() == (1001, [])
            assert ready(world) == "ready\njwt: no keys yet, so apps with accounts get 503\n"
            assert world.broker.printed().count("error: jwt:") == 1
            server.open()
            told(world, "jwt: one key for RS256 from the URL")
            assert ready(world) == "ready\n"
            with status_of(world) as status:
                status(login.token()).expect(200)
                status(None).expect(401, "no_jwt")


def test_a_start_waits_for_no_login(tmp_path, login):
    """A call during the first reading waits for it."""
    with KeyServer(certificate(tmp_path, "login"), login.jwk()) as server:
        def slow(connection, good):
            time.sleep(2)
            connection.sendall(good)
        server.fault = slow
        with served(server, wait=False) as world, status_of(world) as status:
            status(login.token()).expect(200)
            assert len(server.requests) == 1
            head = server.requests[0].lower()
            assert head.startswith("get /keys?tenant=secret-tenant http/1.1\r\n") and "user-agent: mayfly\r\n" in head


def test_a_rotation_refuses_nobody(tmp_path, login, renewed):
    with KeyServer(certificate(tmp_path, "login"), login.jwk()) as server, served(server) as world, status_of(world) as status:
        status(renewed.token()).expect(401, "invalid_jwt")  # Nobody knows it yet; that was the one reading in thirty seconds.
        assert len(server.requests) == 2
    with KeyServer(certificate(tmp_path, "login"), login.jwk()) as server, served(server) as world, status_of(world) as status:
        caller = Caller(world.broker, login.token())
        with caller.socket() as socket:
            server.keys.append(renewed.jwk())
            status(renewed.token()).expect(200)  # the first call with the new key
            status(login.token()).expect(200)
            assert len(server.requests) == 2
            socket.send({"type": "ping"})
            socket.expect("pong")
            # The old key is removed: its sockets and JWTs end.
            server.keys.pop(0)
            hang_up(world)
            told(world, "1 of 2 previous keys removed: every /ws/sessions is closed")
            assert socket.closed() == (1001, [])
        status(login.token()).expect(401, "invalid_jwt")
        caller.close()
        caller = Caller(world.broker, renewed.token())
        caller.socket().connection.close()
        caller.close()


def test_a_socket_waits_for_the_new_key(tmp_path, login, renewed):
    with KeyServer(certificate(tmp_path, "login"), login.jwk()) as server, served(server) as world:
        server.keys.append(renewed.jwk())
        caller = Caller(world.broker, renewed.token())
        with caller.socket() as socket:
            socket.send({"type": "ping"})
            socket.expect("pong")
        caller.close()
        assert len(server.requests) == 2


def test_callers_cannot_flood_the_login(tmp_path, login):
    with KeyServer(certificate(tmp_path, "login"), login.jwk()) as server, served(server) as world:
        def unknown(number):
            caller = Caller(world.broker, login.token({"kid": f"unknown-{number}"}), timeout=30)
            codes = {caller.status().code for _ in range(10)}
            caller.close()
            return codes
        with ThreadPoolExecutor(20) as pool:
            codes = set().union(*pool.map(unknown, range(40)))
        assert codes <= {"invalid_jwt", "jwt_keys_unavailable"} and len(server.requests) == 2


FAULTS = {
    "silent": lambda connection, _: time.sleep(3600), "slow loris": lambda connection, good: drip(connection, good),
    "slow body": lambda connection, good: (connection.sendall(good[:-60]), drip(connection, good[-60:])),
    "no handshake": "no handshake", "closes": lambda connection, _: None,
    "cut": lambda connection, good: connection.sendall(good[:-20]),
    "huge": lambda connection, _: connection.sendall(answer(b" " * (1 << 20) + b"{}")),
    "endless": endless, "interim flood": interim, "no HTTP": lambda connection, _: connection.sendall(b"hello\r\n\r\n"),
    "huge head": lambda connection, _: connection.sendall(b"HTTP/1.1 200 OK\r\n" + b"X-A: %s\r\n" % (b"a" * 100_000)),
    "404": lambda connection, good: connection.sendall(answer({"keys": []}, "404 Not Found")),
    "500": lambda connection, good: connection.sendall(good.replace(b"200 OK", b"500 Oh")),
    "204": lambda connection, _: connection.sendall(b"HTTP/1.1 204 No Content\r\n\r\n"),
    "HTML": lambda connection, _: connection.sendall(answer(b"<html>Log in</html>")),
    "empty": lambda connection, _: connection.sendall(answer(b"")), "no keys": lambda connection, _: connection.sendall(answer({"keys": []})),
    "a key, no set": lambda connection, _: connection.sendall(answer({"kty": "RSA", "n": "AQAB", "e": "AQAB"})),
    "other keys": lambda connection, _: connection.sendall(answer({"keys": [Login("ES256").jwk()]})),
    "101 keys": lambda connection, _: connection.sendall(answer({"keys": [{"kty": "oct"}] * 101}))}


@pytest.mark.parametrize("name", FAULTS)
def test_a_faulty_server_takes_no_key_away(tmp_path, login, renewed, name):
    with KeyServer(certificate(tmp_path, "login"), login.jwk()) as server, served(server) as world, status_of(world) as status:
        server.fault = FAULTS[name]
        hang_up(world)
        eventually(lambda: server.connections == 2, what="a reading")
        # The good set is in use, and so are rooms, also while the server keeps the broker waiting.
        status(login.token()).expect(200)
        rooms_work(world)
        status(renewed.token()).expect(503, "jwt_keys_unavailable")  # It may be in the set that can't be read.
        told(world, f"warning: jwt: {UNREAD}")
        status(login.token()).expect(200)
        assert world.broker.metric("alarms_total") == 0 and ready(world) == "ready\n"
        server.fault, server.keys = None, [login.jwk(), renewed.jwk()]
        hang_up(world)
        told(world, "jwt: 2 keys for RS256 from the URL")
        status(renewed.token()).expect(200)


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
def test_redirects_are_not_followed(tmp_path, login, renewed, code):
    path = certificate(tmp_path, "login")
    with KeyServer(path, renewed.jwk()) as other, KeyServer(path, login.jwk()) as server:
        with served(server) as world, status_of(world) as status:
            server.fault = lambda connection, good: connection.sendall(answer(other.set, f"{code} Go", [f"Location: {other.url}"]))
            hang_up(world)
            told(world, f"{UNREAD}: the peer answered {code}, and redirects are not followed")
            status(renewed.token()).expect(503, "jwt_keys_unavailable")
            status(login.token()).expect(200)
            assert other.connections == 0


@pytest.mark.parametrize("name, wrong, word", [
    ("unknown", {}, "is not from a trusted authority"), ("host", {"host": "other.example"}, "names another host"), ("old", {"days": -1}, "has expired")])
def test_a_wrong_certificate_brings_no_keys(tmp_path, login, renewed, name, wrong, word):
    shown = certificate(tmp_path, name, **wrong)
    with KeyServer(certificate(tmp_path, "login"), login.jwk()) as server:
        if name != "unknown":
            server.path.write_bytes(server.path.read_bytes() + shown.read_bytes())
        with served(server) as world, status_of(world) as status:
            server.reload(shown)
            server.keys = [renewed.jwk()]
            hang_up(world)
            told(world, word)
            status(renewed.token()).expect(503, "jwt_keys_unavailable")
            status(login.token()).expect(200)
            assert len(server.requests) == 1


def test_a_hanging_lookup_keeps_nobody_waiting(tmp_path, login):
    with KeyServer(certificate(tmp_path, "login"), login.jwk()) as server:
        names = {"LD_PRELOAD": library("names.c"), "TEST_NAMES": "localhost=hang"}
        with served(server, wait=False, **names) as world, status_of(world) as status:
            rooms_work(world)
            status(login.token()).expect(503, "jwt_keys_unavailable")
            told(world, f"{UNREAD}: no answer in time")
            rooms_work(world)
            assert world.broker.stop() == 0


def test_check_and_verify_read_the_set(tmp_path, login):
    with KeyServer(certificate(tmp_path, "login"), login.jwk(), {"kty": "RSA", "kid": "bad"}) as server, served(server, apns=True) as world:
        trust = world.trust
        lines = check_all(world.broker, environment=trust)
        assert [line for line in lines if line[0] == "users"] == [
            ("users", "warning", "jwt: keys of the set are not used: key 2 has no member n in base64url. JWTs that they signed are refused")]
        asked = len(server.requests)
        lines = check_all(world.broker, "--offline", environment=trust)
        assert [line for line in lines if line[0] == "users"] == [("users", "good", "the keys for RS256 come from a URL, which was not asked")]
        assert len(server.requests) == asked
        flags = "--algorithm", "RS256", "--jwks", server.url, "--issuer", ISSUER, "--audience", AUDIENCE
        ran = subprocess.run(
            [BINARY, "jwt", "--verify", *flags], input=login.token(), capture_output=True, text=True, timeout=30, env=clean_environment(**trust))
        assert ran.returncode == 0 and ran.stdout == 'good: the user is "ann"\n', ran
        found, text = verify(login.token(), *flags)
        assert found == 1 and "--jwks (MAYFLY_JWT_JWKS): the JWK set can't be read" in text and "trusted authority" in text, text
        server.fault = lambda connection, good: connection.sendall(answer(b"", "404 Not Found"))
        (_, result, text), = [line for line in check_all(world.broker, status=1, environment=trust) if line[0] == "users"]
        assert result == "bad" and text == "--jwt-jwks (MAYFLY_JWT_JWKS): the JWK set can't be read: the peer answered 404"


@pytest.mark.parametrize("url", [
    "http://127.0.0.1/keys", "http://login.example/keys", "ftp://login.example/keys", "https://", "https:///keys", "https://user:secret-word@login.example/keys",
    "https://login.example:x/keys", "file:///etc/passwd", "https://login.example/ü"])
def test_other_urls_are_refused(state, url):
    ran = mayfly(*Broker(state, jwt_algorithm="RS256", jwt_jwks=url).arguments())
    assert ran.returncode == 2 and "--jwt-jwks (MAYFLY_JWT_JWKS) must be a file, or a URL that begins with https://" in ran.stderr
    assert "secret-word" not in ran.stderr


def test_a_secret_is_read_from_no_url(state):
    ran = mayfly(*Broker(state, jwt_algorithm="HS256", jwt_jwks="https://login.example/keys").arguments())
    assert ran.returncode == 2 and "must be a file for HS256" in ran.stderr
