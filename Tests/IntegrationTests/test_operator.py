"""The operator's listener and the simulator's control listener: the host names they answer, and the metrics."""

import socket
import subprocess

import pytest
from prometheus_client.parser import text_string_to_metric_families

import contract
from mayfly import Client
from processes import BINARY

LOOPBACK = ["localhost", "LOCALHOST:1", "127.0.0.1", "127.9.8.7:8788", "[::1]", "[::1]:8788"]
OTHERS = ["attacker.example", "attacker.example:8788", "localhost.attacker.example", "10.0.0.1", "0.0.0.0", "[::2]", "unix:1", ""]


@pytest.fixture
def ports(world):
    return {"operator": (world.broker.operator_port, "/healthz"), "control": (world.simulator.control_port, "/pushes")}


def ask(port, head):
    """The status of the answer to these header lines, and all of it."""
    with socket.create_connection(("127.0.0.1", port), 5) as connection:
        connection.sendall(head + b"Connection: close\r\n\r\n")
        answer = b""
        while part := connection.recv(4096):
            answer += part
        return int(answer.split()[1]), answer


# Promise: operator-loopback-names
@pytest.mark.parametrize("listener", ["operator", "control"])
@pytest.mark.parametrize("form", ["path", "absolute"])
def test_only_loopback_names_are_answered(ports, listener, form):
    """A page may have a name that resolves to 127.0.0.1 (DNS rebinding)."""
    port, path = ports[listener]
    for host in LOOPBACK + OTHERS:
        if form == "absolute" and not host:
            continue
        target = path if form == "path" else f"http://{host}{path}"
        status, answer = ask(port, f"GET {target} HTTP/1.1\r\nHost: {host}\r\n".encode())
        if host in LOOPBACK:
            assert status == 200, (host, answer)
        else:
            assert status == 421 and b"application/problem+json" in answer and b'"foreign_host"' in answer, (host, answer)
    # The name that is believed is no other than the one in Host.
    status, _ = ask(port, f"GET http://localhost{path} HTTP/1.1\r\nHost: attacker.example\r\n".encode())
    assert status in (400, 421)
    status, _ = ask(port, f"GET {path} HTTP/1.0\r\n".encode())
    assert status == 421


def test_every_metric_is_described(world):
    text = Client(world.broker.operator_port).send("GET", "/metrics").expect(200).body.decode()
    families = {family.name: family for family in text_string_to_metric_families(text)}
    samples = [sample for family in families.values() for sample in family.samples]
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    assert len(samples) == len(lines) > 20
    for family in families.values():
        assert family.type in ("counter", "gauge", "histogram"), family
        assert len(family.documentation) > 10 and family.samples, family
        assert family.name.startswith("mayfly_") and all(sample.name.startswith(family.name) for sample in family.samples)
    assert text.count("# HELP ") == text.count("# TYPE ") == len(families)
    assert families["mayfly_purge_lag_seconds"].type == "histogram" and families["mayfly_rooms_created"].type == "counter"


def test_the_version_is_served(world):
    printed = subprocess.run([BINARY, "--version"], capture_output=True, text=True, check=True).stdout.split()[-1]
    text = Client(world.broker.operator_port).send("GET", "/metrics").body.decode()
    [info] = [family for family in text_string_to_metric_families(text) if family.name == "mayfly_build_info"]
    assert [(sample.labels, sample.value) for sample in info.samples] == [({"version": printed}, 1)]
    assert contract.document()["info"]["version"] == printed
