"""SIGHUP under load: new certificates come into use without a failed request, and bad ones change nothing."""

import re
import shutil
import signal
import socket
import ssl
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

from bad_requests import ASK
from certificates import Authority, Certificate
from peers import Peer
from processes import eventually
from world import World


@pytest.fixture(scope="module")
def made():
    with tempfile.TemporaryDirectory(prefix="mayfly-tls-") as folder:
        yield [Certificate(Path(folder), name) for name in ("first", "second", "third")]


@pytest.fixture
def world(made, tmp_path):
    """A broker whose certificate's files can be replaced."""
    files = tmp_path / "server.pem", tmp_path / "server.key"
    install(made[0], files)
    with World(apns=False, tls_certificate=files[0], tls_key=files[1]) as world:
        world.files = files
        yield world


def install(certificate, files):
    for source, target in zip((certificate.path, certificate.key), files):
        shutil.copy(source, f"{target}.new")
        Path(f"{target}.new").rename(target)


def shown(world):
    """The certificate that a new connection sees, as DER."""
    with socket.create_connection(("127.0.0.1", world.broker.port), 5) as plain:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        with context.wrap_socket(plain) as tls:
            return tls.getpeercert(binary_form=True)


def told(world, text, times):
    eventually(lambda: world.broker.printed().count(text) == times, what=f"{times} times {text!r}")


def renew(world, certificate, times):
    install(certificate, world.files)
    world.broker.child.send_signal(signal.SIGHUP)
    told(world, "new connections use", times)
    assert shown(world) == certificate.der


def wrk(port):
    return ["wrk", "-t", "1", "-c", "16", "-d", "3s", f"https://localhost:{port}/audit/checkpoint"]


def wrk_with_new_connections(port):
    return [*wrk(port), "-H", "Connection: close"]


def h2load(port):
    return ["h2load", "-D", "3", "-c", "8", "-m", "8", f"https://localhost:{port}/audit/checkpoint"]


@pytest.mark.campaign
@pytest.mark.parametrize("load", [wrk, wrk_with_new_connections, h2load])
def test_new_certificates_are_served_under_load(world, made, load):
    child = subprocess.Popen(load(world.broker.port), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        for number in range(6):
            time.sleep(0.3)
            renew(world, made[(number + 1) % 3], number + 1)
        printed = child.communicate(timeout=30)[0]
    finally:
        child.kill()
        child.wait()
    print(f"{load.__name__}: {' '.join(printed.split()[-40:])}")
    if load is h2load:
        requests = re.search(r"requests: (\d+) total, \d+ started, (\d+) done, (\d+) succeeded, (\d+) failed, (\d+) errored, (\d+) timeout", printed)
        total, done, succeeded, failed, errored, late = map(int, requests.groups())
        codes = re.search(r"status codes: (\d+) 2xx, 0 3xx, 0 4xx, 0 5xx", printed)
        assert codes, printed
        assert (failed, errored, late) == (0, 0, 0) and succeeded == done > 200, printed
    else:
        assert "Socket errors" not in printed and "Non-2xx" not in printed, printed
        assert int(re.search(r"(\d+) requests in", printed)[1]) > 50, printed


@pytest.mark.campaign
def test_open_connections_survive_a_reload(world, made):
    with Peer(world.broker.port, made[0].context("http/1.1")) as peer:
        peer.send(ASK)
        assert peer.answer().status == 404
        renew(world, made[1], 1)
        peer.send(ASK)
        assert peer.answer().status == 404


def test_bad_files_change_nothing(world, made):
    """The old certificate stays, and the log names the file and the reason."""
    certificate, key = world.files
    spoilt = [
        (certificate, "no certificate"), (certificate, ""), (key, "no key"), (key, made[1].key.read_text()), (certificate,
            made[2].path.read_text()),
        (certificate, made[0].path.read_text()[:300]), (key, None), (certificate, None)]
    for number, (path, content) in enumerate(spoilt):
        install(made[0], world.files)
        if content is None:
            path.unlink()
        else:
            path.write_text(content)
        world.broker.child.send_signal(signal.SIGHUP)
        told(world, "the present one stays in use", number + 1)
        line = world.broker.printed().splitlines()[-1]
        assert str(path) in line and "PRIVATE" not in line, line
        assert shown(world) == made[0].der
    renew(world, made[1], 1)


def test_a_renewed_certificate_has_another_end(world, made, tmp_path):
    """The metric is about the certificate in use, not about the file."""
    def end():
        [found] = re.findall(r'^mayfly_certificate_expiry_timestamp_seconds\{use="tls-certificate"\} (\d+)$', world.broker.metrics(), re.M)
        return round((int(found) - time.time()) / 86_400)
    renew(world, Certificate(tmp_path, "short", days=20), 1)
    assert end() == 20
    install(made[1], world.files)
    assert end() == 20
    renew(world, made[1], 2)
    assert end() == 90


@pytest.mark.campaign
def test_an_expired_certificate_is_not_installed(world, made, tmp_path):
    for file, installed in zip(Authority(tmp_path, "ours").issue("late", days=-1), world.files):
        installed.write_text(file.read_text())
    world.broker.child.send_signal(signal.SIGHUP)
    told(world, "the present one stays in use", 1)
    assert "expired" in world.broker.printed().splitlines()[-1]
    assert shown(world) == made[0].der
    assert world.broker.metric("alarms_total") > 0


def test_a_reload_without_tls_does_nothing(made):
    """SIGHUP ends most programs, but never a broker."""
    with World(apns=False, apns_key_path=None, apns_key_id=None, apns_team_id=None) as world:
        world.broker.child.send_signal(signal.SIGHUP)
        told(world, "SIGHUP: nothing to read again", 1)
        with Peer(world.broker.port) as peer:
            peer.send(ASK)
            assert peer.answer().status == 404
