"""A listener that asks for client certificates serves only those of its authority."""

import subprocess

import pytest

from certificates import Authority, Certificate
from world import World


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    folder = tmp_path_factory.mktemp("authority")
    server, authority = Certificate(folder), Authority(folder, "backends")
    with World(apns=False, tls_client_ca=authority.path, **server.flags) as world:
        yield world, server, authority, folder


def status(world, server, *arguments):
    """The status that curl prints, or 000 without an answer."""
    done = subprocess.run(
        ["curl", "--silent", "--output", "/dev/null", "--write-out", "%{http_code} %{http_version}", "--cacert", server.path, *arguments,
         f"https://localhost:{world.broker.port}/audit/checkpoint", "--max-time", "10"], capture_output=True, text=True, timeout=20)
    return done.stdout


@pytest.mark.parametrize("version", ["2", "1.1"])
@pytest.mark.parametrize("tls", ["1.2", "1.3"])
def test_a_certificate_from_the_authority_is_served(guarded, version, tls):
    world, server, authority, _ = guarded
    path, key = authority.issue("backend")
    assert status(world, server, "--cert", path, "--key", key, f"--http{version}", f"--tlsv{tls}", "--tls-max", tls) == f"200 {version}"


def test_no_certificate_is_refused(guarded):
    world, server, _, _ = guarded
    assert status(world, server).startswith("000")


def test_a_certificate_from_elsewhere_is_refused(guarded):
    world, server, _, folder = guarded
    path, key = Authority(folder, "others").issue("stranger")
    assert status(world, server, "--cert", path, "--key", key).startswith("000")


def test_an_expired_certificate_is_refused(guarded):
    world, server, authority, _ = guarded
    path, key = authority.issue("late", days=-1)
    assert status(world, server, "--cert", path, "--key", key).startswith("000")


def test_the_authority_is_named_to_clients(guarded):
    world, server, _, _ = guarded
    asked = subprocess.run(
        ["openssl", "s_client", "-connect", f"localhost:{world.broker.port}", "-CAfile", server.path],
        input="", capture_output=True, text=True, timeout=20)
    assert "CN = backends.mayfly.test" in asked.stdout
