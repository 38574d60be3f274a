"""Users by JWT: `mayfly jwt` against PyJWT both ways, settings that don't go together, keys that change while the broker runs."""

import base64
import json
import re
import signal
import subprocess
import time

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, HMACAlgorithm, OKPAlgorithm, RSAAlgorithm

from processes import BINARY, Broker, clean_environment, eventually, free_port, mayfly, quick_rooms
from world import World

ALGORITHMS = "HS256", "RS256", "ES256", "EdDSA"
NOW = int(time.time())


class Issuer:
    """An app's login: a key of each algorithm, in files that Mayfly reads."""

    def __init__(self, folder, name="issuer"):
        self.folder = folder / name
        self.folder.mkdir()
        self.keys = {"HS256": base64.b64encode(name.encode() * 8), "ES256": ec.generate_private_key(ec.SECP256R1()),
                     "EdDSA": ed25519.Ed25519PrivateKey.generate(), "RS256": rsa.generate_private_key(65537, 2048)}

    def write(self, name, content):
        path = self.folder / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        path.chmod(0o600)
        return path

    def public(self, algorithm):
        """The key file for a broker."""
        return self.write(algorithm, self.pem(algorithm))

    def pem(self, algorithm):
        key = self.keys[algorithm]
        if algorithm == "HS256":
            return key
        return key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)

    def private(self, algorithm):
        """The file that signs."""
        key = self.keys[algorithm]
        return self.write(f"{algorithm}.private", key if algorithm == "HS256" else key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()))

    def jwk(self, algorithm, **more):
        key = self.keys[algorithm]
        made = {"HS256": HMACAlgorithm, "ES256": ECAlgorithm, "EdDSA": OKPAlgorithm, "RS256": RSAAlgorithm}[algorithm].to_jwk(
            key if algorithm == "HS256" else key.public_key(), as_dict=True)
        return {name: value for name, value in made.items() if name != "key_ops"} | more

    def token(self, algorithm, headers=None, **claims):
        claims = {"sub": "ann", "exp": NOW + 36_000} | claims
        return jwt.encode({name: value for name, value in claims.items() if value is not None}, self.keys[algorithm], algorithm, headers)


@pytest.fixture(scope="module")
def issuer(tmp_path_factory):
    return Issuer(tmp_path_factory.mktemp("jwt"))


@pytest.fixture(scope="module")
def other(tmp_path_factory):
    return Issuer(tmp_path_factory.mktemp("jwt"), "other")


def verify(token, *flags):
    given = token if isinstance(token, bytes) else token.encode()
    ran = subprocess.run([BINARY, "jwt", "--verify", *map(str, flags)], input=given, capture_output=True, timeout=30, env=clean_environment())
    told = (ran.stdout + ran.stderr).decode()
    for part in given.split(b"."):
        assert len(part) < 16 or part.decode(errors="ignore") not in told, "part of a JWT was printed"
    return ran.returncode, told


def flags(issuer, algorithm):
    return "--algorithm", algorithm, "--key", issuer.public(algorithm)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_pyjwt_accepts_made_jwts(issuer, algorithm):
    made = mayfly("jwt", "--sub", 'a "user" ü', "--algorithm", algorithm, "--key", issuer.private(algorithm), "--scope", "broker.notify",
                  "--issuer", "login.example", "--audience", "mayfly", "--kid", "k1", "--expires-in", 60)
    assert made.returncode == 0, made.stderr
    token = made.stdout.strip()
    key = issuer.keys[algorithm] if algorithm == "HS256" else issuer.keys[algorithm].public_key()
    claims = jwt.decode(token, key, [algorithm], audience="mayfly", issuer="login.example", options={"require": ["exp", "iat", "sub"]})
    assert (claims["sub"], claims["scope"], claims["exp"] - claims["iat"]) == ('a "user" ü', "broker.notify", 60)
    assert abs(claims["iat"] - time.time()) < 5
    assert jwt.get_unverified_header(token) == {"alg": algorithm, "typ": "JWT", "kid": "k1"}


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_jwts_of_pyjwt_are_accepted(issuer, other, algorithm):
    assert verify(issuer.token(algorithm), *flags(issuer, algorithm)) == (0, 'good: the user is "ann"\n')
    status, told = verify(issuer.token(algorithm, iat=NOW, nbf=NOW, jti="1", scope="x broker.notify"), *flags(issuer, algorithm))
    assert status == 0 and told.endswith(", by a back end\n")
    keys = [issuer.jwk(algorithm, kid="a", use="sig", alg=algorithm), other.jwk(algorithm, kid="b"), {"kty": "RSA", "n": "AQAB", "e": "AQAB", "use": "enc"}]
    jwks = issuer.write("jwks.json", json.dumps({"keys": keys}, indent=2))
    for who, kid in ((issuer, "a"), (other, "b")):
        assert verify(who.token(algorithm, {"kid": kid}), "--algorithm", algorithm, "--jwks", jwks)[0] == 0
        swapped = verify(who.token(algorithm, {"kid": "ba"["ab".index(kid)]}), "--algorithm", algorithm, "--jwks", jwks)
        assert swapped[0] == 1 and "signature" in swapped[1]
    status, told = verify(issuer.token(algorithm, exp=NOW - 60), *flags(issuer, algorithm))
    assert status == 1 and told.startswith("jwt_expired: "), told
    for headers, word in (({"kid": "c"}, "none of this broker's keys"), (None, "names no key")):
        status, told = verify(issuer.token(algorithm, headers), "--algorithm", algorithm, "--jwks", jwks)
        assert status == 1 and told.startswith("invalid_jwt: ") and word in told


def test_help_names_both_forms():
    told = mayfly("jwt", "--help").stdout
    assert "public key that verifies them" in told and "needs a private key" in told
    assert told.count("`mayfly jwt --sub` writes it") == 3


# settings


def test_conflicting_settings_are_refused(issuer):
    """Before anything is opened."""
    secret, public = issuer.public("HS256"), issuer.public("ES256")
    loose, short = issuer.write("loose", b"s" * 40), issuer.write("short", b"s" * 31)
    loose.chmod(0o640)
    small = rsa.generate_private_key(65537, 1024).public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    private = issuer.write("private.json", json.dumps({"keys": [issuer.jwk("ES256") | {"kid": "leaked", "d": "AA"}]}))
    cases = [
        (2, {"jwt_key": secret}, "--jwt-key (MAYFLY_JWT_KEY) needs --jwt-algorithm"), (2, {"jwt_audience": "x"}, "needs --jwt-algorithm"),
        (2, {"jwt_algorithm": "HS256"}, "needs --jwt-key or --jwt-jwks"), (2, {"jwt_algorithm": "none", "jwt_key": secret}, "HS256, RS256, ES256, EdDSA"),
        (2, {"jwt_algorithm": "HS256", "jwt_key": secret, "jwt_jwks": secret}, "one of them"),
        (1, {"jwt_algorithm": "HS256", "jwt_key": public}, "public keys are not secret"), (1, {"jwt_algorithm": "HS256", "jwt_key": loose}, "mode 0640, so others"),
        (1, {"jwt_algorithm": "HS256", "jwt_key": short}, "shorter than 32"), (1, {"jwt_algorithm": "ES256", "jwt_key": secret}, "not a public key"),
        (1, {"jwt_algorithm": "EdDSA", "jwt_key": public}, "Ed25519"), (1, {"jwt_algorithm": "ES256", "jwt_key": issuer.private("ES256")}, "Use the public"),
        (1, {"jwt_algorithm": "ES256", "jwt_key": issuer.public("RS256")}, "P-256"), (1, {"jwt_algorithm": "RS256", "jwt_key": issuer.write("small", small)}, "it has 1024 bits"),
        (1, {"jwt_algorithm": "RS256", "jwt_key": public}, "RSA with 2048 to 4096 bits"), (1, {"jwt_algorithm": "ES256", "jwt_jwks": public}, "not a JWK set"),
        (1, {"jwt_algorithm": "ES256", "jwt_key": issuer.folder / "none"}, "can't be read"), (1, {"jwt_algorithm": "ES256", "jwt_jwks": private}, 'key 1 has the member d: it is a private key')]
    with World(apns=False, start=False) as world:
        for status, settings, word in cases:
            broker = Broker(world.state, **settings)
            ran = mayfly(*broker.arguments())
            assert ran.returncode == status and word in ran.stderr, (settings, ran.stderr)
            named = "--jwt-jwks (MAYFLY_JWT_JWKS): " if "jwt_jwks" in settings else "--jwt-key (MAYFLY_JWT_KEY): "
            assert status == 2 or ran.stderr.splitlines()[-1].startswith(f"mayfly: {named}"), (settings, ran.stderr)
            assert not (world.state / "mayfly.sqlite").exists()


# a broker


def install(path, *keys):
    new = path.with_suffix(".new")
    new.write_text(json.dumps({"keys": keys}))
    new.chmod(0o600)
    new.rename(path)


def told(world, text, times):
    eventually(lambda: world.broker.printed().count(text) == times, what=f"{times} times {text!r}")


def test_a_signal_reads_keys_again(issuer, other):
    """SIGHUP reads the new keys. A bad file changes nothing and raises an alarm."""
    path = issuer.folder / "rotating.json"
    install(path, issuer.jwk("ES256", kid="first"))
    with World(apns=False, jwt_algorithm="ES256", jwt_jwks=path) as world:
        def hang_up():
            world.broker.child.send_signal(signal.SIGHUP)
        # A malformed key doesn't keep the good ones out.
        install(path, issuer.jwk("ES256", kid="first"), other.jwk("ES256", kid="second"), other.jwk("HS256", kid="k", k="AA") | {"use": "enc"})
        hang_up()
        told(world, f"jwt: 2 keys for ES256 from {path}", 1)
        told(world, "warning: jwt: keys of the set are not used: key 3 has the member k: it is a secret", 1)
        install(path, issuer.jwk("ES256", kid="first"), other.jwk("ES256", kid="second"))
        hang_up()
        told(world, f"jwt: 2 keys for ES256 from {path}", 2)
        for content in ("", "{", None):
            path.unlink() if content is None else path.write_text(content)
            hang_up()
            told(world, "jwt: the present keys stay in use. ", {"": 1, "{": 2, None: 3}[content])
        assert world.broker.metric("alarms_total") > 0
        assert "certificate" not in world.broker.printed()


def demo_ports():
    return {name: f"127.0.0.1:{free_port()}" for name in (
        "MAYFLY_LISTEN", "MAYFLY_OPERATOR_LISTEN", "MAYFLY_APNS_SIMULATOR_LISTEN", "MAYFLY_APNS_SIMULATOR_CONTROL")}


# Promise: demo-story
def test_the_demo_plays_its_story_and_ends(tmp_path):
    policy = tmp_path / "quick-rooms.json"  # whose log publishes every second
    policy.write_text(json.dumps(quick_rooms()))
    ran = mayfly("demo", MAYFLY_STATE=tmp_path / "var", MAYFLY_POLICY=policy, **demo_ports())
    assert ran.returncode == 0 and "The ledger's verdict: good." in ran.stdout, ran
    # A second story in the same folder tells its own part of the log.
    again = mayfly("demo", MAYFLY_STATE=tmp_path / "var", MAYFLY_POLICY=policy, **demo_ports())
    assert again.returncode == 0, again
    for told in (ran.stdout, again.stdout):
        assert "2 addresses sealed, 1 opened for a push, 2 destroyed." in told, told


def test_a_demo_follows_one_that_was_cut_off(tmp_path):
    """Its room may still wait for Ben."""
    policy = tmp_path / "quick-rooms.json"
    policy.write_text(json.dumps(quick_rooms()))
    places = {"MAYFLY_STATE": tmp_path / "var", "MAYFLY_POLICY": policy}
    child = subprocess.Popen([BINARY, "demo"], stdout=subprocess.PIPE, text=True, env=clean_environment(**places, **demo_ports()))
    try:
        while not child.stdout.readline().startswith("2. "):
            pass
    finally:
        child.kill()
        child.wait()
        child.stdout.close()
    ran = mayfly("demo", **places, **demo_ports())
    assert ran.returncode == 0 and "2 addresses sealed, 1 opened for a push, 2 destroyed." in ran.stdout, ran


def test_run_prints_jwts_of_a_user_and_a_back_end(tmp_path):
    ports = demo_ports()
    state, printed = tmp_path / "var", tmp_path / "printed"
    with open(printed, "wb") as out:
        child = subprocess.Popen([BINARY, "demo", "--stay"], stdout=out, stderr=out, env=clean_environment(MAYFLY_STATE=state, **ports))
        try:
            eventually(lambda: "Ctrl-C ends it" in printed.read_text(), seconds=20, what="the demo's start")
        finally:
            child.terminate()
            child.wait(20)
    text = printed.read_text()
    secret = (state / "keys/jwt.secret").read_bytes()
    assert (state / "keys/jwt.secret").stat().st_mode & 0o777 == 0o600 and len(secret.strip()) == 43
    assert secret.strip().decode() not in text and str(state / "keys/jwt.secret") in text
    user, back_end = (jwt.decode(token, secret.strip(), ["HS256"]) for token in re.findall(r"eyJ[\w-]+\.[\w-]+\.[\w-]+", text))
    assert user["sub"] == "user-1" and "scope" not in user and back_end["scope"] == "broker.notify"
    assert {path.name for path in (state / "keys").iterdir()} == {
        "ratchet.key", "ratchet.key.new", "ledger.key", "apns.p8", "simulator.pem", "simulator-ca.pem", "jwt.secret", "webhook.secret",
        "vapid.pem", "web-push-hosts"}
    webhooks = state / "keys/webhook.secret"
    assert webhooks.stat().st_mode & 0o777 == 0o600 and len(webhooks.read_text().strip()) == 43
    assert f"throw-away secret {webhooks}\n  secret     {webhooks.read_text()}" in text


def test_bad_use(issuer):
    for words, word in (((), "--sub"), (("--sub", "a", "--expires-in", "0"), "--expires-in"), (("--verify", "--sub", "a"), "--sub")):
        ran = mayfly("jwt", "--algorithm", "HS256", "--key", issuer.private("HS256"), *words)
        assert ran.returncode == 2 and word in ran.stderr and not ran.stdout, ran
