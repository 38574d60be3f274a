"""`mayfly apns`, which explains why no push arrives, against the simulator and PyJWT."""

import base64
import json
import re
import subprocess
import time
import uuid

import jwt
import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from apns_recorder import APNsRecorder
from canary import Canaries
from mayfly import new_token
from processes import BINARY, BUNDLE_ID, KEY_ID, REPOSITORY, TEAM_ID, clean_environment, eventually, free_port, mayfly, told_no_token


def environment(world, settings):
    """The broker's own settings, except for `changes`."""
    settings = {
        "APNS_KEY_PATH": world.state / "keys/apns.p8", "APNS_KEY_ID": KEY_ID, "APNS_TEAM_ID": TEAM_ID, "APNS_BUNDLE_ID": BUNDLE_ID,
        "MAYFLY_APNS_ENDPOINT": f"127.0.0.1:{world.simulator.port}", "MAYFLY_APNS_CA": world.state / "keys/simulator-ca.pem",
        "MAYFLY_STATE": world.state.folder} | settings
    return clean_environment(**{name: value for name, value in settings.items() if value is not None})


def apns(world, *words, given="", **settings):
    return told_no_token(subprocess.run(
        [BINARY, "apns", *map(str, words)], input=given, capture_output=True, text=True, timeout=40, env=environment(world, settings)))


@pytest.fixture
def faults(world):
    yield world.simulator.fault
    world.simulator.fault()


# check


def test_check_accepts_good_settings(world):
    world.simulator.forget()
    ran = apns(world, "check")
    assert ran.returncode == 0 and ran.stdout.startswith("com.example.app, production: good\n"), ran
    [push] = world.simulator.pushes()
    assert push["token"] == "00" * 32 and push["payload"] == {"aps": {"content-available": 1}}
    assert push["headers"]["apns-push-type"] == "background" and push["headers"]["apns-priority"] == "5"
    assert push["headers"]["apns-expiration"] == "0"


def test_check_accepts_settings_with_a_bad_token(world, faults):
    faults(reason="BadDeviceToken")
    ran = apns(world, "check", APNS_ENVIRONMENT="sandbox")
    assert ran.returncode == 0 and ran.stdout.startswith("com.example.app, sandbox: good\n") and "BadDeviceToken" in ran.stdout


@pytest.mark.parametrize("settings, reason", [
    ({"APNS_KEY_ID": "WRONGKEYID"}, "InvalidProviderToken"), ({"APNS_TEAM_ID": "WRONGTEAM1"}, "InvalidProviderToken"),
    ({"APNS_BUNDLE_ID": "org.example.another"}, "TopicDisallowed")])
def test_check_reports_wrong_settings(world, settings, reason):
    ran = apns(world, "check", **settings)
    assert ran.returncode == 1 and "production: bad\n" in ran.stdout
    said = apns(world, "explain", reason).stdout
    # Nothing is said twice, and a check doesn't advise a check.
    assert reason not in ran.stderr and "mayfly apns check" not in ran.stdout, ran
    assert [line.strip() for line in said.splitlines()] == [line.strip() for line in ran.stdout.splitlines()[1:]]


@pytest.mark.parametrize("status, reason", [(500, "InternalServerError"), (503, "ServiceUnavailable"), (429, "TooManyProviderTokenUpdates")])
def test_check_reports_answers_that_judge_nothing(world, faults, status, reason):
    faults(status=status, reason=reason)
    ran = apns(world, "check")
    assert ran.returncode == 1 and f"production: unknown\n  {reason} " in ran.stdout and "did not check" in ran.stderr and "refuses" not in ran.stderr, ran
    [row] = json.loads(apns(world, "check", "--json").stdout)
    assert (row["good"], row["verdict"], row["status"], row["reason"]) == (False, "unknown", status, reason)


def test_check_uses_the_brokers_provider_token(world, client, state):
    """Apple allows one in twenty minutes, so a check beside a broker must not make a second."""
    def birth(**settings):
        with APNsRecorder(state / "keys/simulator.pem") as recorder:
            check = subprocess.Popen([BINARY, "apns", "check"], stdout=subprocess.DEVNULL, env=environment(world, settings | {
                "MAYFLY_APNS_ENDPOINT": f"127.0.0.1:{recorder.port}", "MAYFLY_APNS_CA": state / "keys/simulator-ca.pem"}))
            token = recorder.request(10)["authorization"].removeprefix("bearer ")
            check.kill()
            check.wait()
        return jwt.decode(token, options={"verify_signature": False})["iat"]
    room = client.room()
    assert client.presence(room.roomid, room.joiner.client).expect(202).json["delivery"] == "queued"
    eventually(lambda: world.simulator.pushes(room.creator.token), what="the push")
    time.sleep(1.1)
    begin = time.time()
    # Both are dated a minute back.
    assert birth() <= begin - 61
    # Without the broker's state there is none to use.
    assert birth(MAYFLY_STATE=state / "none") >= int(begin) - 60


# send


def test_send(world):
    token = new_token()
    ran = apns(world, "send", given=token + "\n")
    assert ran.returncode == 0, ran
    [push] = world.simulator.pushes(token)
    assert push["headers"]["apns-id"] in ran.stdout and push["headers"]["apns-topic"] == BUNDLE_ID
    assert "It is not recorded in the log" in ran.stdout
    assert push["payload"]["aps"]["alert"]["body"] == "Your chat partner is waiting" and len(push["payload"]["roomId"]) == 22
    assert token not in ran.stdout + ran.stderr


@pytest.mark.parametrize("setting, environment", [
    ({}, "production"), ({"APNS_PRODUCTION": "false"}, "sandbox"), ({"APNS_PRODUCTION": "true"}, "production"), ({"APNS_ENVIRONMENT": "development"}, "sandbox"),
    ({"APNS_PRODUCTION": "false", "APNS_ENVIRONMENT": "production"}, "production")])
def test_the_environment_by_the_settings_of_other_servers(world, setting, environment):
    said = json.loads(apns(world, "send", "--json", given=new_token(), **setting).stdout)
    assert (said["environment"], said["delivered"]) == (environment, True)


def unique_id(text):
    [found] = re.findall(r"^apns-unique-id ([0-9a-f-]{36}): ", text, re.MULTILINE) or [None]
    return found


def test_send_prints_apples_name_of_a_delivery(world):
    # The simulator plays the sandbox.
    ran = apns(world, "send", given=new_token())
    assert uuid.UUID(unique_id(ran.stdout)).version == 4, ran


# Promise: json-output
def test_send_and_check_print_json_alone(world, faults):
    token = new_token()
    ran = apns(world, "send", "--json", given=token)
    said = json.loads(ran.stdout)
    [push] = world.simulator.pushes(token)
    assert said.pop("apns-id") == push["headers"]["apns-id"] and uuid.UUID(said.pop("apns-unique-id"))
    assert said == {"environment": "production", "topic": BUNDLE_ID, "delivered": True, "status": 200, "reason": None, "cause": None}
    [checked] = json.loads(apns(world, "check", "--json").stdout)
    assert checked == {
        "topic": BUNDLE_ID, "environment": "production", "good": True, "verdict": "good", "status": 200, "reason": None, "cause": None}
    faults(reason="Unregistered", timestamp=1)
    ran = apns(world, "send", "--json", given=token)
    said = json.loads(ran.stdout)
    assert ran.returncode == 1 and (said["delivered"], said["status"], said["reason"], said["apns-unique-id"]) == (False, 410, "Unregistered", None)
    faults(reason="TopicDisallowed")
    ran = apns(world, "check", "--json")
    [refused] = json.loads(ran.stdout)
    assert ran.returncode == 1 and (refused["good"], refused["verdict"]) == (False, "bad"), ran
    ran = apns(world, "send", "--json", given="nonsense")
    assert ran.returncode == 1 and ran.stdout == "", ran


def test_send_of_a_background_push_with_fields(world, tmp_path):
    policy = json.loads((REPOSITORY / "policies/rooms.json").read_text())
    policy["templates"]["refresh"] = {
        "pushType": "background", "priority": 5, "ttlSeconds": 60, "handleKey": "id",
        "fields": {
            "kind": {"kind": "enum", "values": ["one", "two"], "key": "kind"},
            "percent": {"kind": "number", "min": 0, "max": 100, "step": 5, "key": "percent"}, "last": {"kind": "flag", "key": "last"}}}
    path = tmp_path / "policy.json"
    path.write_text(json.dumps(policy))
    fields = ["--field", "kind=two", "--field", "percent=35", "--field", "last=true"]
    token = new_token()
    ran = apns(world, "send", "refresh", "--policy", path, *fields, given=token)
    assert ran.returncode == 0, ran
    [push] = world.simulator.pushes(token)
    assert push["headers"]["apns-push-type"] == "background"
    payload = push["payload"]
    assert (payload["kind"], payload["percent"], payload["last"], payload["aps"]) == ("two", 35, True, {"content-available": 1})
    for wrong in (["--field", "kind=three"], ["--field", "percent=x"], ["--field", "nothing=1"], ["--field", "last=maybe"], ["--field", "percent=3"]):
        ran = apns(world, "send", "refresh", "--policy", path, *fields, *wrong, given=token)
        assert ran.returncode in (1, 2) and "field" in ran.stderr, ran
    assert apns(world, "send", "unheard_of", given=token).returncode == 2
    assert len(world.simulator.pushes(token)) == 1


def test_send_explains_a_refusal(world, faults):
    token = new_token()
    faults(reason="Unregistered", timestamp=1)
    ran = apns(world, "send", given=token)
    assert ran.returncode == 1 and "the app was removed from the phone" in ran.stdout and "status 410" in ran.stderr
    assert token not in ran.stdout + ran.stderr


# token


TOKENS = [
    ("AB" * 32, 0, "32 bytes"), ("ab" * 100, 0, "100 bytes"), ("ab" * 101, 1, "1 to 100"), ("ab" * 31 + "a", 1, "odd"), ("", 1, "empty"),
    ("<abababab cdcdcdcd>", 1, "Data"), ("{length = 32, bytes = 0xabababab ... cdcdcdcd }", 1, "two hexadecimal digits"), ("0x" + "ab" * 32, 1, "0x"),
    (base64.b64encode(bytes(range(32))).decode(), 1, "base64"), ("ExponentPushToken[xxxxxxxxxxxxxxxxxxxxxx]", 1, "Expo"),
    ("c" * 22 + ":APA91b" + "x" * 134, 1, "Firebase"), (" " + "ab" * 32, 1, "blanks"), ('"' + "ab" * 32 + '"', 1, "JSON"),
    ("zz" * 32, 1, "not hexadecimal"), ("a" * 9000, 2, "8192")]


def test_token(world):
    for given, code, said in TOKENS:
        ran = apns(world, "token", given=given + "\n")
        assert ran.returncode == code and said in ran.stdout + ran.stderr, ran
        canaries = Canaries()
        if len(given) > 12:
            canaries.add("token", given)
        assert canaries.in_bytes((ran.stdout + ran.stderr).encode()) == []


# jwt


def test_a_made_jwt_is_accepted_by_verify_and_pyjwt(world):
    token = apns(world, "jwt").stdout.strip()
    key = serialization.load_pem_private_key((world.state / "keys/apns.p8").read_bytes(), None).public_key()
    assert jwt.decode(token, key, ["ES256"], options={"verify_iat": True})["iss"] == TEAM_ID
    forms = ("{}", "bearer {}", "Bearer {}", "BEARER   {}", "bearer\t{}", " {} ", "\t Bearer {}  \r\n", "{}\r\n", "{}\r")
    for given in (form.format(token) for form in forms):
        ran = apns(world, "jwt", "--verify", given=given)
        assert ran.returncode == 0 and "this key's" in ran.stdout and "bad" not in ran.stdout, ran
        assert token not in ran.stdout + ran.stderr and token.split(".")[2] not in ran.stdout


def signed(key, head, claims):
    return jwt.encode(claims, key, "ES256", head)


def test_verify_finds_each_fault(world):
    key = serialization.load_pem_private_key((world.state / "keys/apns.p8").read_bytes(), None)
    other = ec.generate_private_key(ec.SECP256R1())
    now, head = int(time.time()), {"kid": KEY_ID}
    good = signed(key, head, {"iss": TEAM_ID, "iat": now})
    parts = good.split(".")
    der = base64.urlsafe_b64encode(key.sign(b"x", ec.ECDSA(hashes.SHA256()))).decode().rstrip("=")
    cases = {
        signed(other, head, {"iss": TEAM_ID, "iat": now}): "not this key's",
        signed(key, head, {"iss": TEAM_ID, "iat": now - 4000}): "s ago, and Apple accepts",
        signed(key, head, {"iss": TEAM_ID, "iat": now + 600}): "ahead",
        signed(key, head, {"iss": TEAM_ID, "iat": now * 1000}): "milliseconds",
        signed(key, head, {"iss": TEAM_ID}): "iat",
        signed(key, head, {"iss": "OTHERTEAM1", "iat": now}): "iss is not the configured",
        signed(key, {}, {"iss": TEAM_ID, "iat": now}): "kid is missing",
        jwt.encode({"iss": TEAM_ID, "iat": now}, "k" * 32, "HS256", head): "alg is not ES256",
        jwt.encode({"iss": TEAM_ID, "iat": now}, None, "none", head): "alg is not ES256",
        ".".join([*parts[:2], der]): "DER", ".".join(parts[:2]): "2 parts", "nonsense": "1 parts", "a.b.c": "header",
        good[:-2] + ("AA" if not good.endswith("AA") else "QQ"): "not this key's"}
    for given, said in cases.items():
        ran = apns(world, "jwt", "--verify", given=given)
        assert ran.returncode == 1 and any("bad" in line and said in line for line in ran.stdout.splitlines()), (said, ran)
    ran = apns(world, "jwt", "--verify", given=good, APNS_KEY_PATH=None, APNS_KEY_ID=None, APNS_TEAM_ID=None)
    assert "set --apns-key-path" in ran.stdout
    assert apns(world, "jwt", "--verify").returncode == 2
    for nothing in (" \t\r\n", "bearer", "Bearer  \r\n"):
        assert apns(world, "jwt", "--verify", given=nothing).returncode in (1, 2), nothing
    # Only the scheme `bearer` may come first.
    assert apns(world, "jwt", "--verify", given="basic " + good).returncode == 1
    assert apns(world, "jwt", "--verify", given="bearer" + good).returncode == 1


@pytest.mark.parametrize("words, limit", [(("send",), 8_192), (("token",), 8_192), (("jwt", "--verify"), 4_096)])
def test_lines_of_any_length(world, words, limit):
    """A line that is too long is not reported as empty."""
    for given in ("a" * (limit + 1), "a" * (limit + 1) + "\n", "ab" * 40_000):
        ran = apns(world, *words, given=given)
        assert ran.returncode == 2 and f"more than {limit} bytes" in ran.stderr and "is empty" not in ran.stderr, ran
    ran = apns(world, *words, given="a" * limit)
    assert ran.returncode == 1 and "more than" not in ran.stderr, ran


# explain


def reasons_of(schema):
    [found] = [part["properties"]["reason"] for part in schema["oneOf"] if "reason" in part["properties"]]
    return found.get("enum") or schema["$defs"][found["$ref"].rpartition("/")[2]]["enum"]


def test_explain_knows_every_reason_of_the_log(world):
    schema = json.loads((REPOSITORY / "audit/entry.schema.json").read_text())
    reasons = reasons_of(schema)
    assert {"unsent", "unreachable", "BadDeviceToken"} <= set(reasons)
    explained = json.loads(apns(world, "explain", "--json", *reasons).stdout)
    assert len(explained) == len(reasons) and all(one["means"] and one["remedy"] for one in explained)
    assert apns(world, "explain", "nonsense").returncode == 2


def test_bad_use(world):
    for words in ((), ("nothing",), ("check", "x"), ("token", "x"), ("send", "a", "b"), ("find", str(uuid.uuid4())), ("check", "--field", "a=b"), ("token", "--verify")):
        assert apns(world, *words).returncode == 2, words
    assert "usage" in apns(world, "--help").stdout


# help

FAMILIES = {
    "apns": ["check", "send", "explain", "token", "jwt"], "keys": ["init", "throwaway", "renew", "rotate", "show"],
    "audit": ["verify", "prove", "show", "report", "page"], "policy": ["lint", "show", "keys"]}


@pytest.mark.parametrize("family", FAMILIES)
def test_each_subcommand_has_its_own_help(family):
    def help_of(*words):
        ran = mayfly(family, *words, "--help")
        assert ran.returncode == 0 and ran.stderr == "", ran
        return ran.stdout
    whole = help_of()
    for name in FAMILIES[family]:
        assert f" mayfly {family} {name}" in whole
        text = help_of(name)
        assert text.startswith(f"usage: mayfly {family} {name}") and mayfly(family, name, "-h").stdout == text
        assert len(text) < len(whole) and not [other for other in FAMILIES[family] if other != name and f"mayfly {family} {other}" in text]
    assert help_of("nonsense") == whole


def test_a_subcommands_help_names_its_settings_only():
    assert "--apns-key-path" in mayfly("apns", "check", "--help").stdout
    assert "--policy" in mayfly("apns", "send", "--help").stdout and "--policy" not in mayfly("apns", "check", "--help").stdout
    assert "--apns-" not in mayfly("apns", "explain", "--help").stdout + mayfly("apns", "token", "--help").stdout
    assert "--since" in mayfly("audit", "verify", "--help").stdout and "--since" not in mayfly("audit", "show", "--help").stdout


def test_the_simulator_names_the_flag_that_its_help_names():
    ran = mayfly("apns-simulator", "--apns-key-path", "nowhere")
    assert ran.returncode == 2 and "--certificate (MAYFLY_APNS_SIMULATOR_CERTIFICATE) is missing" in ran.stderr, ran
    assert "\n  --certificate (" in mayfly("apns-simulator", "--help").stdout
    ran = mayfly("apns-simulator", "--listen", "nowhere", "--certificate", REPOSITORY / "policies/rooms.json")
    assert ran.returncode == 2 and "--listen (MAYFLY_APNS_SIMULATOR_LISTEN) must be ADDRESS:PORT" in ran.stderr, ran


# Checks of servers that aren't there, begun with the first test.

@pytest.mark.background
@pytest.mark.parametrize("settings, said", [
    ({"MAYFLY_APNS_ENDPOINT": "127.0.0.1:1"}, "connect: Connection refused"), ({"MAYFLY_APNS_CA": None}, "certificate")])
def test_check_reports_a_server_that_is_not_apns(world, settings, said):
    ran = apns(world, "check", **settings)
    # The cause is printed once, and what to do is about the setting.
    assert ran.returncode == 1 and "production: unknown\n  unreachable\n    cause        " in ran.stdout and ran.stdout.count(said) == 1, ran
    assert "--apns-endpoint (MAYFLY_APNS_ENDPOINT)" in ran.stdout and "apple.com" not in ran.stdout and "broker's log" not in ran.stdout, ran
    # Nobody refused anything.
    [line] = ran.stderr.splitlines()
    assert "refuses" not in line and "did not check" in line, ran
    [row] = json.loads(apns(world, "check", "--json", **settings).stdout)
    assert row["reason"] == "unreachable" and said in row["cause"], row


@pytest.mark.background
def test_a_start_check_of_servers_that_are_not_there(world):
    """Each cause is said once, on standard output."""
    login, endpoint = free_port(), f"127.0.0.1:{free_port()}"
    given = {"MAYFLY_JWT_ALGORITHM": "ES256", "MAYFLY_JWT_JWKS": f"https://127.0.0.1:{login}/set", "MAYFLY_APNS_ENDPOINT": endpoint}
    ran = subprocess.run([BINARY, "check", "--json"], capture_output=True, text=True, timeout=60, env=environment(world, given))
    texts = {line["check"]: line["text"] for line in json.loads(ran.stdout) if line["result"] == "bad"}
    assert ran.returncode == 1 and len(ran.stderr.splitlines()) == 1 and ran.stderr.endswith("are bad\n"), ran
    assert texts["users"].endswith("the JWK set can't be read: connect: Connection refused"), texts
    assert "unreachable (connect: Connection refused). Correct --apns-endpoint (MAYFLY_APNS_ENDPOINT)" in texts["apns"], texts
    assert endpoint in texts["apns"] and "apple.com" not in texts["apns"], texts
