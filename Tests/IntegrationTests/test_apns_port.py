"""Apple's other port, 2197, in both environments. A preloaded library resolves Apple's names to loopback."""

import subprocess
import tempfile
from contextlib import ExitStack
from pathlib import Path

import pytest

from apns_recorder import APNsRecorder
from certificates import openssl
from mayfly import Client, new_client, new_code, new_token, other_address
from preload import library
from processes import BINARY, BUNDLE_ID, KEY_ID, TEAM_ID, Broker, clean_environment, mayfly
from test_startup_errors import start_fails

HOSTS = {"production": "api.push.apple.com", "sandbox": "api.sandbox.push.apple.com"}


@pytest.fixture(scope="module")
def apple():
    """{environment: the recorder at port 2197 of its address}, and the environment of a process that resolves Apple's names to these."""
    with tempfile.TemporaryDirectory(prefix="mayfly-names-") as folder, ExitStack() as stack:
        folder = Path(folder)
        certificate, key, both = (folder / f"apple.{end}" for end in ("crt", "key", "pem"))
        openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", key, "-out", certificate,
                "-days", 30, "-subj", "/CN=apns.mayfly.test", "-addext",
                "subjectAltName=" + ",".join(f"DNS:{name}" for name in HOSTS.values()))
        both.write_bytes(certificate.read_bytes() + key.read_bytes())
        addresses = {name: other_address() for name in HOSTS.values()}
        recorders = {environment: stack.enter_context(APNsRecorder(both, (addresses[name], 2197), 200))
                     for environment, name in HOSTS.items()}
        names = ",".join(f"{name}={address}" for name, address in addresses.items())
        yield recorders, {"LD_PRELOAD": library("names.c"), "TEST_NAMES": names, "MAYFLY_APNS_CA": certificate}


def keys(state):
    return {"APNS_KEY_PATH": state / "keys/apns.p8", "APNS_KEY_ID": KEY_ID, "APNS_TEAM_ID": TEAM_ID, "APNS_BUNDLE_ID": BUNDLE_ID}


def test_check_goes_to_port_2197_of_both_environments(apple, state):
    recorders, environment = apple
    ran = mayfly("apns", "check", "--apns-port", 2197, "--state", state.folder, **keys(state), **environment)
    assert ran.returncode == 0, ran
    assert ran.stdout.count(": good\n") == 2, ran
    for name, recorder in recorders.items():
        # RFC 9113, 8.3.1: with the port, unless it is the scheme's.
        assert recorder.request(1)[":authority"] == HOSTS[name] + ":2197"


def test_send_goes_to_port_2197(apple, state):
    recorders, environment = apple
    ran = subprocess.run(
        [BINARY, "apns", "send"], input=new_token() + "\n", capture_output=True, text=True, timeout=30, env=clean_environment(
            MAYFLY_APNS_PORT=2197, APNS_ENVIRONMENT="sandbox", MAYFLY_STATE=state.folder, **keys(state), **environment))
    assert ran.returncode == 0 and "delivered" in ran.stdout, ran
    assert recorders["sandbox"].request(1)[":authority"] == "api.sandbox.push.apple.com:2197"
    assert recorders["production"].requests.empty()


def test_a_broker_sends_to_port_2197(apple, state, processes):
    recorders, environment = apple
    broker = Broker(state, apns_endpoint=None, apns_ca=None)
    broker.options["apns-port"] = 2197
    processes.append(broker.start(**environment))
    client = Client(broker.port)
    for name, recorder in recorders.items():
        code, joiner, token = new_code(), new_client(), new_token()
        room = client.create(code, token=token, environment=name).expect(201).json
        client.accept(code, joiner).expect(200)
        assert client.presence(room["roomid"], joiner).expect(202).json["delivery"] == "queued"
        headers = recorder.request(5)
        assert headers[":authority"] == HOSTS[name] + ":2197" and headers[":path"] == f"/3/device/{token}"


def test_other_ports_are_refused(state):
    for words, value in ((["serve"], "2198"), (["apns", "check"], "2197 "), (["apns", "check"], "https")):
        ran = mayfly(*words, "--state", state.folder, f"--apns-port={value}", **keys(state))
        assert ran.returncode == 2 and "--apns-port (MAYFLY_APNS_PORT) must be 443 or 2197" in ran.stderr, ran


@pytest.mark.parametrize("port", ["443", "2197"])
def test_a_port_beside_an_endpoint_is_refused(state, processes, port):
    broker = Broker(state)
    broker.options["apns-port"] = port
    processes.append(broker)
    start_fails(broker, "MAYFLY_APNS_PORT", status=2)
