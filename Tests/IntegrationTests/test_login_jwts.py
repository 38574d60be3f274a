"""JWTs of an independent login: good ones are accepted, and no wrong one is."""

import json
from contextlib import contextmanager

import pytest

from companion_client import Caller
from login import ALGORITHMS, AUDIENCE, ISSUER, Login, weak_jwks, wrong_tokens
from world import World

# Logins use the name, though RFC 9864 has another one.
pytestmark = pytest.mark.filterwarnings("ignore:EdDSA is deprecated")


@contextmanager
def served(login, other, *more):
    """A broker with the JWK set of two keys and of `more`, and a caller with any JWT."""
    with World(apns=False, start=False) as world:
        path = world.state.prints / "jwks.json"
        path.write_text(json.dumps({"keys": [*more, login.jwk(), other.jwk()]}))
        world.broker.options |= {
            "policy": "rooms,companion", "jwt-algorithm": login.algorithm, "jwt-key": None, "jwt-jwks": path, "jwt-issuer": ISSUER,
            "jwt-audience": AUDIENCE}
        world.broker.start()
        caller = Caller(world.broker, None)
        yield world, lambda token: caller.call("GET", "/api/push/status", bearer=token)
        caller.close()


# Promise: jwt-algorithm-fixed
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_wrong_jwts_are_refused(algorithm):
    login, other = Login(algorithm), Login(algorithm, "other")
    with served(login, other, *(weak_jwks() if algorithm == "RS256" else [])) as (_, status):
        for good in (login.token(), other.token(), login.token(aud=["x", AUDIENCE]), login.token({"typ": "at+jwt"}, nbf=None, iat=None),
                     login.token({"jku": "https://127.0.0.1:1/", "x5u": "https://127.0.0.1:1/"})):
            status(good).expect(200)
        wrong = wrong_tokens(login, other)
        assert len(wrong) >= 60
        accepted = {}
        for name, token in wrong.items():
            answer = status(token)
            if answer.status != 401 or answer.code not in ("invalid_jwt", "jwt_expired"):
                accepted[name] = answer
        assert not accepted, accepted
        status(login.token()).expect(200)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_malformed_key_keeps_nobody_out(algorithm):
    """RFC 7517 section 5. The warning has the key's place, and nothing of the key."""
    login, other = Login(algorithm), Login(algorithm, "other")
    leaked = other.key.as_dict(private=True) | {"kid": "leaked-kid"}
    malformed = [
        7, {}, {"kty": "unknown"}, {"kty": login.jwk()["kty"], "crv": login.jwk().get("crv"), "kid": "incomplete-kid"}, leaked,
        login.jwk(kid=5), login.jwk(use=[]), {"kty": "oct", "k": "c2VjcmV0", "kid": "secret-kid"}]
    with served(login, other, *malformed) as (world, status):
        status(login.token()).expect(200)
        told = world.broker.printed()
        warning, = [line for line in told.splitlines() if "keys of the set are not used" in line]
        for place in ("key 1 ", "key 2 ", "key 4 ", "key 5 ", "key 6 ", "key 7 ", "key 8 "):
            assert place in warning, (place, warning)
        assert "key 3 " not in warning, "a key of another type is normal in a set"
        for secret in ("-kid", "c2VjcmV0", *(value for value in leaked.values() if isinstance(value, str) and len(value) > 8)):
            assert secret not in told, secret
