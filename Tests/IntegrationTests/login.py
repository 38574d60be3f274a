"""An app's login by another implementation (joserfc): keys, JWK sets, good JWTs and wrong ones."""

import base64
import hashlib
import hmac
import json
import time
from functools import cache

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from joserfc import jws
from joserfc.jwk import ECKey, OKPKey, RSAKey

ALGORITHMS = "RS256", "ES256", "EdDSA"
ISSUER, AUDIENCE = "https://login.example/", "mayfly"
MAKERS = {
    "RS256": lambda: RSAKey.generate_key(2048), "ES256": lambda: ECKey.generate_key("P-256"), "EdDSA": lambda: OKPKey.generate_key("Ed25519")}


def encoded(data):
    data = data if isinstance(data, bytes) else json.dumps(data).encode()
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def decoded(text):
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def signature(algorithm, text, key):
    return encoded(jws.JWSRegistry(algorithms=[algorithm]).get_alg(algorithm).sign(text.encode(), key))


def sign(key, header, payload):
    """The compact form of any payload, signed by the header's algorithm."""
    payload = payload if isinstance(payload, (str, bytes)) else json.dumps(payload)
    registry = jws.JWSRegistry(algorithms=[header["alg"]], strict_check_header=False)
    return jws.serialize_compact(header, payload, key, registry=registry)


class Login:
    """`kid` names its key. A set has the key of another login too, so that JWTs must name theirs."""

    def __init__(self, algorithm, kid="current"):
        self.algorithm, self.kid, self.key = algorithm, kid, MAKERS[algorithm]()

    def jwk(self, **more):
        return self.key.as_dict(private=False) | {"kid": self.kid, "use": "sig", "alg": self.algorithm} | more

    def claims(self, **changes):
        """Good claims. A change to None removes one."""
        now = int(time.time())
        claims = {"sub": "ann", "iss": ISSUER, "aud": AUDIENCE, "iat": now, "nbf": now, "exp": now + 3600} | changes
        return {name: value for name, value in claims.items() if value is not None}

    def header(self, **changes):
        header = {"alg": self.algorithm, "kid": self.kid, "typ": "JWT"} | changes
        return {name: value for name, value in header.items() if value is not None}

    def token(self, header={}, key=None, **claims):
        return sign(key or self.key, self.header(**header), self.claims(**claims))

    def raw(self, header, payload):
        """The same for a header that the library would refuse, or a payload as it is."""
        text = f"{encoded(header)}.{encoded(payload)}"
        return f"{text}.{signature(self.algorithm, text, self.key)}"


@cache
def weak_keys():
    """RSA keys that no broker may use, by their `kid`: (n, e, d)."""
    def numbers(key):
        private = key.private_numbers()
        return private.public_numbers.n, private.public_numbers.e, private.d
    return {
        "1024-bits": numbers(rsa.generate_private_key(65537, 1024)), "exponent-3": numbers(rsa.generate_private_key(3, 2048)),
        "8192-bits": large_key()}


def large_key():
    """8,192 bits, of the known primes of RFC 3526 section 5 and RFC 7919 appendix A.3: to search such primes takes minutes."""
    guard = 64
    one = 1 << (3966 + guard)  # fixed-point

    def arctan(inverse):
        return sum((-1) ** k * (one // inverse ** (2 * k + 1) // (2 * k + 1)) for k in range(3000))
    pi = 16 * arctan(5) - 4 * arctan(239)
    e, term = 0, one
    for k in range(1, 700):
        e, term = e + term, term // k
    p = 2 ** 4096 - 2 ** 4032 - 1 + 2 ** 64 * ((pi >> guard) + 240904)
    q = 2 ** 4096 - 2 ** 4032 - 1 + 2 ** 64 * ((e >> guard) + 5736041)
    return p * q, 65537, pow(65537, -1, (p - 1) * (q - 1))


def number(value):
    return encoded(value.to_bytes((value.bit_length() + 7) // 8, "big"))


def weak_jwks():
    return [{"kty": "RSA", "kid": kid, "n": number(n), "e": number(e), "alg": "RS256"} for kid, (n, e, _) in weak_keys().items()]


def weak_token(login, kid):
    """A JWT that a weak key signed correctly (RFC 8017 section 9.2)."""
    n, _, d = weak_keys()[kid]
    text = f"{encoded(login.header(kid=kid, alg='RS256'))}.{encoded(login.claims())}"
    size = (n.bit_length() + 7) // 8
    digest = bytes.fromhex("3031300d060960864801650304020105000420") + hashlib.sha256(text.encode()).digest()
    block = b"\0\1" + b"\xff" * (size - len(digest) - 3) + b"\0" + digest
    return f"{text}.{encoded(pow(int.from_bytes(block, 'big'), d, n).to_bytes(size, 'big'))}"


def der(signature):
    """The DER form of R || S."""
    def integer(value):
        value = value.lstrip(b"\0") or b"\0"
        value = b"\0" + value if value[0] & 0x80 else value
        return b"\x02" + bytes([len(value)]) + value
    both = integer(signature[:32]) + integer(signature[32:])
    return b"\x30" + bytes([len(both)]) + both


def wrong_tokens(login, other):
    """Name: JWT. `other` is another login of the algorithm, whose key is in the same set."""
    algorithm, now = login.algorithm, int(time.time())
    good = login.token()
    head, body, signed = good.split(".")
    stranger, foreign = Login(algorithm), {name: Login(name, login.kid) for name in ALGORITHMS if name != algorithm}
    public = login.key.as_pem(private=False)

    def code(key, header=None):
        text = f"{encoded(header or login.header(alg='HS256'))}.{body}"
        return f"{text}.{encoded(hmac.new(key, text.encode(), 'sha256').digest())}"

    def payload(text):
        return login.raw(login.header(), text.encode())
    claims = json.dumps(login.claims())
    wrong = {
        "alg none": f"{encoded({'alg': 'none', 'kid': login.kid})}.{body}.",
        "alg none, signed": f"{encoded({'alg': 'none', 'kid': login.kid})}.{body}.{signed}",
        "alg None": login.raw(login.header(alg="None"), login.claims()),
        "no alg": login.raw(login.header(alg=None), login.claims()),
        "HS256 with the public key": code(public), "HS256 with its PEM's text": code(public.strip()),
        "HS256 with the JWK": code(json.dumps(login.jwk()).encode()),
        "HMAC with the right alg": code(public, login.header()),
        "HS256 with an empty secret": code(b""),
        "another login's key": login.token({"kid": other.kid}), "a stranger's key": stranger.token({"kid": login.kid}),
        "unknown kid": login.token({"kid": "nobody"}), "empty kid": login.token({"kid": ""}), "no kid": login.token({"kid": None}),
        "kid is a number": login.raw(login.header(kid=1), login.claims()),
        "kid is a path": login.token({"kid": "../../dev/null"}),
        "crit": login.raw(login.header(crit=["exp"], exp=now), login.claims()),
        "empty crit": login.raw(login.header(crit=[]), login.claims()),
        "b64 false": login.raw(login.header(crit=["b64"], b64=False), login.claims()),
        "b64 false without crit": login.raw(login.header(b64=False), login.claims()),
        "jku": stranger.token({"kid": "theirs", "jku": "https://127.0.0.1:1/keys"}),
        "x5u": stranger.token({"x5u": "https://127.0.0.1:1/keys"}),
        "jwk in the header": stranger.raw(login.header(jwk=stranger.jwk()), login.claims()),
        "x5c": stranger.raw(login.header(x5c=[base64.b64encode(public).decode()]), login.claims()),
        "nested": login.raw(login.header(cty="JWT"), good.encode()),
        "JSON form": json.dumps({"payload": body, "signatures": [{"protected": head, "signature": signed}]}),
        "encrypted": f"{encoded({'alg': 'dir', 'enc': 'A128GCM'})}..{body}.{signed}.AA",
        "expired": login.token(exp=now - 40), "no exp": login.token(exp=None), "exp is text": login.token(exp=str(now + 60)),
        "nbf ahead": login.token(nbf=now + 60), "iat ahead": login.token(iat=now + 60),
        "another aud": login.token(aud="other"), "no aud": login.token(aud=None), "aud without ours": login.token(aud=["a", "b"]),
        "another iss": login.token(iss="https://login.example"), "no iss": login.token(iss=None), "a list of iss": login.token(iss=[ISSUER]),
        "no sub": login.token(sub=None), "empty sub": login.token(sub=""), "sub is a number": login.token(sub=7),
        "truncated signature": good[:-2], "half a signature": f"{head}.{body}.{signed[:len(signed) // 2]}",
        "no signature": f"{head}.{body}.", "two parts": f"{head}.{body}",
        "a byte more": f"{head}.{body}.{encoded(decoded(signed) + bytes(1))}",
        "a byte before": f"{head}.{body}.{encoded(bytes(1) + decoded(signed))}",
        "a trailing dot": good + ".", "four parts": f"{good}.AA", "trailing text": good + " x", "padded": good + "=",
        "bits left over": good[:-1] + chr(ord(good[-1]) + 1) if good[-1] in "AQgw" else good[:-1] + "!",
        "standard alphabet": f"{head}.{body}.{signed[:-4]}++//",
        "duplicated sub": payload(claims[:-1] + ', "sub": "mallory"}'), "duplicated exp": payload('{"exp": 1, ' + claims[1:]),
        "duplicated alg": login.raw(json.dumps(login.header())[:-1].encode() + b', "alg": "none"}', login.claims()),
        "claims in a list": payload(f"[{claims}]"), "no JSON": payload("x"), "two objects": payload(claims + claims),
        "other claims": f"{head}.{encoded(login.claims(sub='mallory'))}.{signed}",
        "another header": f"{encoded(login.header(typ='jwt'))}.{body}.{signed}",
        "all zeros": f"{head}.{body}.{encoded(bytes(len(decoded(signed))))}"}
    for name, one in foreign.items():
        wrong[f"{name}, by its key"] = one.token()
        wrong[f"{algorithm} by a key of {name}"] = f"{head}.{body}.{signature(name, f'{head}.{body}', one.key)}"
    if algorithm == "RS256":
        for more in ("PS256", "RS384", "RS512"):
            wrong[more] = sign(login.key, login.header(alg=more), login.claims())
        wrong["PSS under RS256"] = f"{head}.{body}.{signature('PS256', f'{head}.{body}', login.key)}"
        for kid in weak_keys():
            wrong[kid] = weak_token(login, kid)
    if algorithm == "ES256":
        raw = decoded(signed)
        wrong["DER"] = f"{head}.{body}.{encoded(der(raw))}"
        wrong["S before R"] = f"{head}.{body}.{encoded(raw[32:] + raw[:32])}"
        wrong["ES384"] = sign(ECKey.generate_key("P-384"), login.header(alg="ES384"), login.claims())
    assert len(set(wrong.values())) == len(wrong)
    return wrong
