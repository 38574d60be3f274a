"""Missing and bad JWTs at each of the companion's routes and on its socket."""

import base64
import hashlib
import hmac
import json
import signal
import time
from secrets import token_hex, token_urlsafe

import jwt
import pytest
from websockets.exceptions import InvalidStatus

import ledger
from clocks import Clocks
from companion_client import Caller, Phone, SessionSocket, Users
from companion_pushes import seconds
from companion_world import ROUTES, UNKNOWN, CompanionWorld, new_session, users
from processes import eventually, mayfly
from world import World


make_world = CompanionWorld


def bad_tokens(users):
    """Name: (code, JWT). The other ways to be bad: `JSONWebTokenTests` and `JSONWebClaimsTests`."""
    now = int(time.time())
    claims = {"sub": "mallory", "iat": now, "exp": now + 3600}
    return {
        "foreign": ("invalid_jwt", jwt.encode(claims, "another secret of thirty-two bytes", "HS256")),
        "alg none": ("invalid_jwt", jwt.encode(claims, None, "none")), "not a JWT": ("invalid_jwt", "x"),
        "expired": ("jwt_expired", jwt.encode(claims | {"exp": now - 40}, users.secret, "HS256"))}


@pytest.mark.parametrize("method, path, body", ROUTES, ids=[f"{m} {p}".replace(UNKNOWN, "X") for m, p, _ in ROUTES])
def test_calls_need_a_good_jwt(world, nothing_kept, method, path, body):
    caller = Caller(world.broker, None)
    for headers in ({}, {"Authorization": "Basic YTpi"}, {"Authorization": world.users.token("mallory")},
                    {"Authorization": "Token " + world.users.token("mallory")}):
        answer = caller.call(method, path, body, headers=headers).expect(401, "no_jwt")
        assert answer.headers["www-authenticate"] == "Bearer"
    caller.call(method, f"{path}?access_token={world.users.token('mallory')}", body).expect(401, "no_jwt")
    for name, (code, token) in bad_tokens(world.users).items():
        answer = caller.call(method, path, body, bearer=token)
        assert (answer.status, answer.code) == (401, code), f"{name}: {answer.status} {answer.body}"
        assert answer.headers["www-authenticate"].startswith('Bearer error="invalid_token"'), name
        assert "mallory" not in answer.body.decode() and token not in answer.body.decode()
    caller.close()


def test_a_jwt_over_eight_kib_is_refused(world, nothing_kept):
    """By the engine's limit of a header or by the JWT's."""
    caller = Caller(world.broker, None)
    for size in (8_192, 20_000, 200_000):
        caller.close()
        try:
            answer = caller.call("GET", "/api/push/status", bearer=world.users.token("mallory", padding="x" * size), checked=False)
        except OSError:
            continue
        assert (answer.status, answer.code) in ((401, "invalid_jwt"), (431, answer.code)), answer
    caller.close()


def test_jwts_at_their_bounds_are_accepted(world):
    """Thirty seconds of clock skew, a name of 128 bytes, and one word of the scope."""
    now = int(time.time())
    for token in (world.users.token("a", nbf=now + 20), world.users.token("a", exp=now - 20), world.users.token("x" * 128),
                  world.users.token("é" * 64), world.users.token("a", scope=["read", "broker.notify"]),
                  world.users.token("a", scope="broker.notifyall")):
        caller = Caller(world.broker, token)
        caller.status().expect(200)
        caller.close()
    nearly = Caller(world.broker, world.users.token("a", scope="broker.notifyall broker notify"))
    nearly.event(new_session(), "question_asked", {}, "somebody").expect(403, "another_user")
    nearly.close()


def test_times_are_numeric_dates(world):
    """RFC 7519 section 2: any JSON number. Claims that nobody reads are not judged."""
    now = int(time.time())
    for more in (f'"exp":{now + 60}.75,"iat":{now}.123', f'"exp":{(now + 60) / 1e9}e9,"nbf":{now}.0', f'"exp":{now + 60},"iat":{now / 1e9!r}E+9',
                 rf'"exp":{now + 60},"name":"\ud83d"', f'"exp":{now + 60},"groups":{"[" * 2000}{"]" * 2000}', f'"exp":{now + 60},"x":1,"x":2'):
        answer = phone_call(world, signed(world.users.secret, f'{{"sub":"ann",{more}}}'))
        assert answer.status == 200, (more, answer.body)
    for more, code, part in (
            ('"exp":"1800000000"', "invalid_jwt", "claim exp"), ('"exp":1e400', "invalid_jwt", "claim exp"), (f'"exp":{now - 31}.99', "jwt_expired", "expired"),
            (f'"exp":{now + 60},"iat":{now + 40}.5', "invalid_jwt", "iat"), (f'"exp":{now + 60},"exp":{now + 61}', "invalid_jwt", "has exp twice"),
            (f'"exp":{now + 60},"name":NaN', "invalid_jwt", "The claims of the JWT are invalid JSON at line 1, column")):
        answer = phone_call(world, signed(world.users.secret, f'{{"sub":"ann",{more}}}'))
        assert (answer.status, answer.code) == (401, code) and part in answer.json["detail"], (more, answer.body)
        assert "description=" in answer.headers["www-authenticate"]


def phone_call(world, token):
    caller = Caller(world.broker, token)
    answer = caller.call("GET", "/api/push/status")
    caller.close()
    return answer


def signed(secret, claims, header='{"alg":"HS256"}'):
    """A JWT with these exact claims."""
    part = lambda data: base64.urlsafe_b64encode(data).rstrip(b"=")
    text = part(header.encode()) + b"." + part(claims.encode())
    return (text + b"." + part(hmac.new(secret.encode(), text, hashlib.sha256).digest())).decode()


def test_a_back_end_must_name_the_user(back_end, nothing_kept):
    back_end.event("s", "approval_request", {}).expect(400, "missing_field", "userId")
    with back_end.socket() as socket:
        answer = socket.ask({"type": "approval_request", "sessionId": "s", "data": {}})
        assert (answer["type"], answer["code"]) == ("error", "missing_field")


def test_sockets_need_a_good_jwt(world, nothing_kept):
    firsts = [
        ("hello", "malformed_json"), ("[]", "malformed_json"), ({"type": "ping"}, None), ({"type": "approval_request", "sessionId": "s"}, None),
        ({}, None), ({"type": "auth"}, "no_jwt"), ({"type": "auth", "token": None}, "no_jwt"), ({"type": "auth", "token": 7}, "wrong_type"),
        ({"type": "auth", "token": ""}, "invalid_jwt"), ({"type": "auth", "token": ["x"]}, "wrong_type")]
    firsts += [({"type": "auth", "token": token}, code) for code, token in bad_tokens(world.users).values()]
    for message, code in firsts:
        with SessionSocket(world.broker) as socket:
            socket.connection.send(message if isinstance(message, str) else json.dumps(message))
            close, messages = socket.closed()
            assert close == 1008 and [one["type"] for one in messages] == ["error"], (message, close, messages)
            assert code is None or messages[0]["code"] == code, (message, messages)
            to = {"to": message["type"]} if isinstance(message, dict) and "type" in message else {}
            details = {"details": messages[0]["details"]} if "details" in messages[0] else {}
            assert messages[0] == {"type": "error", "code": messages[0]["code"], "error": messages[0]["error"]} | to | details


def test_a_socket_ends_with_its_jwt(world):
    """Calls and sockets have the same thirty seconds of leeway."""
    phone = world.phone("user-" + token_hex(4))
    phone.jwt = world.users.token(phone.name, life=-27)
    phone.status().expect(200)
    with SessionSocket(world.broker) as socket:
        socket.send({"type": "auth", "token": phone.jwt})
        expires = seconds(socket.expect("authenticated")["expiresAt"])
        assert expires < time.time()
        assert socket.closed() == (1008, []) and 30 - 0.1 < time.time() - expires < 32
    phone.status().expect(401, "jwt_expired")
    with SessionSocket(world.broker) as socket:
        assert socket.ask({"type": "auth", "token": phone.jwt})["code"] == "jwt_expired" and socket.closed() == (1008, [])
    phone.close()


def test_sockets_end_with_the_key_of_their_jwt(world):
    """SIGHUP with a key removed ends only the sockets that may have used it."""
    path, read = world.state / "keys/jwt.secret", "jwt: one key for HS256 from "

    def install(secret):
        new, times = path.with_suffix(".new"), world.broker.printed().count(read)
        new.touch(0o600)
        new.write_text(secret)
        new.rename(path)
        world.broker.child.send_signal(signal.SIGHUP)
        eventually(lambda: world.broker.printed().count(read) == times + 1, what="the keys' being read")

    user, back_end, silent = world.phone("user-" + token_hex(4)), world.back_end(), SessionSocket(world.broker)
    with user.socket() as socket, back_end.socket() as other, silent:
        install(path.read_text())
        socket.send({"type": "ping"})
        socket.expect("pong")
        install(token_urlsafe(32))
        assert socket.closed() == other.closed() == (1001, [])
        assert "; 1 of 1 previous keys removed: every /ws/sessions is closed" in world.broker.printed()
        silent.send({"type": "auth", "token": user.jwt})
        assert silent.expect("error")["code"] == "invalid_jwt"
    install(world.users.secret)
    user.socket().connection.close()
    user.close()
    back_end.close()


def test_jwts_use_the_wall_clock(tmp_path):
    """A clock that was ahead and set right locks nobody out, though broker time never goes back."""
    clocks = Clocks(tmp_path / "clocks")
    with CompanionWorld(start=False) as world:
        world.broker.start(**clocks.environment)
        phone, status = world.phone("user-" + token_hex(4)), ("GET", "/api/push/status")
        with phone.socket() as socket:
            phone.call(*status).expect(200)
            clocks.leap(7200)
            phone.call(*status).expect(401, "jwt_expired")
            clocks.leap(-7200)
            phone.call(*status).expect(200)
            socket.send({"type": "ping"})
            socket.expect("pong")
        phone.socket().connection.close()
        phone.close()


@pytest.mark.parametrize("user", ["ann", 42])
def test_the_user_claim_can_be_chosen(user):
    """As text or as a number. One of the JWTs is valid for a year."""
    with CompanionWorld(start=False) as world:
        world.broker.options["jwt-user-claim"] = "userId"
        world.broker.start()
        logins = Users(world.users.secret, claim="userId")
        phone = Phone(world.broker, world.simulator, logins.token(user, life=366 * 86_400), str(user)).log_in()
        back_end = Caller(world.broker, logins.back_end())
        assert back_end.event(new_session(), "question_asked", {}, str(user)).expect(202).json["pushes"] == 1
        phone.wait(1)
        # Neither `sub`, nor nothing.
        for bad in ({"sub": str(user), "userId": None}, {"userId": ""}, {"userId": 1.5}):
            answer = phone.call("GET", "/api/push/status", bearer=logins.token(user, **bad)).expect(401, "invalid_jwt")
            assert "The claim userId of the JWT" in answer.json["detail"]
        # JWTs that `mayfly jwt` makes with the same setting are accepted.
        made = mayfly(
            "jwt", "--sub", user, "--user-claim", "userId", "--algorithm", "HS256", "--key", world.state / "keys/jwt.secret",
            "--expires-in", 31_536_000)
        assert made.returncode == 0, made.stderr
        claims = jwt.decode(made.stdout.strip(), world.users.secret, ["HS256"])
        assert claims["userId"] == str(user) and "sub" not in claims and claims["exp"] - claims["iat"] == 31_536_000
        assert phone.call("GET", "/api/push/status", bearer=made.stdout.strip()).expect(200).json["deviceTokenRegistered"]
        for name in ("exp", 'a"b', "a b", "x" * 129):
            refused = mayfly(
                "jwt", "--sub", user, "--user-claim", name, "--algorithm", "HS256", "--key", world.state / "keys/jwt.secret")
            assert refused.returncode == 2 and "user-claim (MAYFLY_JWT_USER_CLAIM)" in refused.stderr, refused
        for caller in (phone, back_end):
            caller.close()


def test_without_a_key_no_jwt_is_accepted():
    with World(apns=False) as world:
        caller = Caller(world.broker, users(world.state).token("alice"))
        for method, path, body in ROUTES:
            caller.call(method, path, body).expect(404, "audiences_off")
            caller.call(method, path, body, bearer="x").expect(404, "audiences_off")
        with pytest.raises(InvalidStatus, match="404"):
            SessionSocket(world.broker)
        caller.close()


@pytest.mark.campaign
def test_a_silent_socket_is_closed(world):
    with SessionSocket(world.broker) as socket:
        assert socket.closed(timeout=12) == (1008, [])


def test_the_log_counts_refusals_by_cause(world):
    """Runs last. A window has one entry for each cause."""
    def refused():
        return [entry for entry in ledger.read(world.state).entries if entry["op"] == "request.refused"]
    eventually(lambda: {"unauthorized", "forbidden"} <= {entry["cause"] for entry in refused()}, what="the refusals in the log")
    world.whole_log()
    assert len({(entry["at"], entry["cause"]) for entry in refused()}) == len(refused()), "more than one entry a window and cause"
