"""A broker that pushes to several apps, by keys and certificates: which apps a registration may name, and which lists are refused."""

import json
import resource
import subprocess

import pytest

import ledger
from certificates import Authority, openssl
from mayfly import Client, new_client, new_code, new_token
from processes import BINARY, BUNDLE_ID, KEY_ID, REPOSITORY, TEAM_ID, Broker, clean_environment, eventually, mayfly, told_no_token
from test_startup_errors import start_fails
from world import World

ALONE = {name: None for name in ("apns_key_path", "apns_key_id", "apns_team_id", "apns_bundle_id")}
KEY = f"key keys/apns.p8 {KEY_ID} {TEAM_ID}"


def write(state, *lines):
    path = state.folder.parent / f"{state.folder.name}.apps"
    path.write_text("".join(line.replace(" keys/", f" {state.folder}/keys/") + "\n" for line in lines))
    return path


@pytest.fixture
def listed(state, processes):
    """A broker with such a list."""
    def make(*lines, **more):
        broker = Broker(state, apns_apps=write(state, *lines), **ALONE | more)
        processes.append(broker)
        return broker
    return make


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("authority"), "apple")


# Apple's marks of a certificate's purpose.
SANDBOX, PRODUCTION = "1.2.840.113635.100.6.3.1", "1.2.840.113635.100.6.3.2"


def issued(authority, name, subject, *marks):
    """(PEM with its key, .p12 with the passphrase `secret`) of a certificate for this subject, with these extensions."""
    folder = authority.folder
    path, key, request, both, p12 = (folder / f"{name}.{end}" for end in ("crt", "key", "csr", "pem", "p12"))
    openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", key, "-out", request, "-subj", subject)
    extensions = folder / f"{name}.ext"
    extensions.write_text("".join(f"{mark}=DER:05:00\n" for mark in marks))
    openssl("x509", "-req", "-in", request, "-CA", authority.path, "-CAkey", authority.key, "-CAcreateserial", "-days", 30, "-out", path,
            "-extfile", extensions)
    both.write_bytes(path.read_bytes() + key.read_bytes())
    both.chmod(0o600)
    openssl("pkcs12", "-export", "-in", path, "-inkey", key, "-out", p12, "-passout", "pass:secret")
    p12.chmod(0o600)
    return both, p12


# Registrations


@pytest.fixture(scope="module")
def several():
    """The simulator knows the first two apps, and not the third."""
    with World(apns=False, start=False) as world:
        apps = write(
            world.state, "# the apps", "", f"{BUNDLE_ID} production,sandbox {KEY}", f"org.example.other\tsandbox\t{KEY}  ",
            f"org.example.third production {KEY}")
        app = world.state.prints / "app.json"
        app.write_text(json.dumps(
            {"keyID": KEY_ID, "teamID": TEAM_ID, "key": str(world.state / "keys/apns.p8"), "topics": [BUNDLE_ID, "org.example.other"]}))
        world.simulator.more = ["--app", app]
        world.simulator.start()
        world.broker.options |= {name.replace("_", "-"): value for name, value in ALONE.items()} | {"apns-apps": apps}
        world.broker.start()
        yield world


def knocked_at(world, **more):
    """A room whose creator registers so and is knocked at: its answer, and its token."""
    client, code, token = world.client(), new_code(), new_token()
    room = client.create(code, new_client(), token, **more).expect(201).json
    client.accept(code, (joiner := new_client())).expect(200)
    assert client.presence(room["roomid"], joiner).expect(202).json["delivery"] == "queued"
    return room, token


@pytest.mark.parametrize("more, topic", [({}, BUNDLE_ID), ({"bundleId": BUNDLE_ID}, BUNDLE_ID), ({"bundleId": "org.example.other"}, "org.example.other")])
def test_pushes_go_to_the_named_app(several, more, topic):
    _, token = knocked_at(several, **more)
    [push] = eventually(lambda: several.simulator.pushes(token), what="the push")
    assert push["headers"]["apns-topic"] == topic


def test_send_uses_the_app_of_the_settings(several):
    token = new_token()
    environment = clean_environment(
        APNS_BUNDLE_ID="org.example.other", APNS_ENVIRONMENT="sandbox", MAYFLY_APNS_APPS=several.broker.options["apns-apps"],
        MAYFLY_APNS_ENDPOINT=f"127.0.0.1:{several.simulator.port}", MAYFLY_APNS_CA=several.state / "keys/simulator-ca.pem",
        MAYFLY_STATE=several.state.folder)
    ran = told_no_token(subprocess.run([BINARY, "apns", "send"], input=token, capture_output=True, text=True, timeout=30, env=environment))
    assert ran.returncode == 0, ran
    [push] = several.simulator.pushes(token)
    assert push["headers"]["apns-topic"] == "org.example.other"


def test_an_app_unknown_to_apple_keeps_its_tokens(several):
    room, _ = knocked_at(several, bundleId="org.example.third")
    [failed] = eventually(lambda: ledger.read(several.state).outcomes(room["ref"]), 8, what="the outcome")
    assert (failed["op"], failed["reason"], failed["status"]) == ("push.failed", "TopicDisallowed", 400)
    assert several.client().status(room["roomid"]).expect(200).json["creatorHasToken"]


# Promise: unserved-address-keeps-its-token
def test_an_app_that_left_the_list_keeps_its_tokens():
    """Its pushes fail with an alarm that names no app. Once it is listed again, they arrive."""
    with World(apns=False, start=False) as world:
        app = world.state.prints / "app.json"
        app.write_text(json.dumps(
            {"keyID": KEY_ID, "teamID": TEAM_ID, "key": str(world.state / "keys/apns.p8"), "topics": [BUNDLE_ID, "org.example.other"]}))
        world.simulator.more = ["--app", app]
        world.simulator.start()
        both = (f"{BUNDLE_ID} production {KEY}", f"org.example.other production {KEY}")

        def start(*lines):
            world.broker.options |= {name.replace("_", "-"): value for name, value in ALONE.items()} | {"apns-apps": write(world.state, *lines)}
            world.broker.start()
        start(*both)
        client, token, joiner, rooms = world.client(), new_token(), new_client(), []
        for _ in range(2):
            rooms.append(client.create(code := new_code(), new_client(), token, bundleId="org.example.other").expect(201).json)
            client.accept(code, joiner).expect(200)
        client.close()
        assert world.broker.stop() == 0

        start(both[0])
        client, [room, _] = world.client(), rooms
        # A start's grace delays the push.
        assert client.presence(room["roomid"], joiner).expect(202).json["delivery"] == "queued"
        [failed] = eventually(lambda: ledger.read(world.state).outcomes(room["ref"]), 30, what="the outcome")
        assert (failed["op"], failed["reason"], failed["status"]) == ("push.failed", "TopicDisallowed", 0)
        assert client.status(room["roomid"]).expect(200).json["creatorHasToken"]
        printed = world.broker.printed()
        assert "courier: pushes to an app fail, because it is not configured any more. No token is purged" in printed, printed
        assert "org.example.other" not in printed
        client.close()
        assert world.broker.stop() == 0

        start(*both)
        client, [_, room] = world.client(), rooms
        assert client.presence(room["roomid"], joiner).expect(202).json["delivery"] == "queued"
        [push] = eventually(lambda: world.simulator.pushes(token), 30, what="the push")
        assert push["headers"]["apns-topic"] == "org.example.other"
        client.close()


@pytest.mark.parametrize("form", ["pem", "p12"])
def test_pushes_by_certificate_and_by_key(authority, form, tmp_path):
    """Two apps, each over its own connections."""
    pem, p12 = issued(authority, "pushes", f"/UID={BUNDLE_ID}/CN=Apple Push Services")
    (tmp_path / "passphrase").write_text("secret\n")
    certificate = pem if form == "pem" else f"{p12} {tmp_path}/passphrase"
    with World(apns=False, start=False) as world:
        app = world.state.prints / "app.json"
        app.write_text(json.dumps(
            {"keyID": KEY_ID, "teamID": TEAM_ID, "key": str(world.state / "keys/apns.p8"), "topics": ["org.example.other"]}))
        world.simulator.more = ["--app", app, "--client-ca", authority.path]
        world.simulator.start()
        world.broker.options |= {name.replace("_", "-"): value for name, value in ALONE.items()} | {
            "apns-apps": write(world.state, f"{BUNDLE_ID} production certificate {certificate}", f"org.example.other production {KEY}")}
        world.broker.start()
        for more in ({}, {"bundleId": "org.example.other"}):
            _, token = knocked_at(world, **more)
            [push] = eventually(lambda: world.simulator.pushes(token), what="the push")
            assert push["headers"]["apns-topic"] == more.get("bundleId", BUNDLE_ID)


@pytest.mark.parametrize("more, code", [
    ({"bundleId": "org.example.fourth"}, 400), ({"bundleId": "org.example.other", "environment": "production"}, 400),
    ({"bundleId": "org.example.other", "environment": "development"}, 201), ({"bundleId": "org.example.other"}, 201),
    ({"bundleId": BUNDLE_ID, "environment": "sandbox"}, 201), ({"bundleId": None}, 201), ({"bundleId": BUNDLE_ID.upper()}, 400),
    ({"bundleId": BUNDLE_ID + ".voip"}, 400)])
def test_a_token_of_an_unserved_app_is_not_sealed(several, more, code):
    client = several.client()
    answer = client.create(token=new_token(), **more)
    assert answer.status == code
    if code == 400:
        assert answer.code == "app_not_served"
    room = client.create(join := new_code(), (creator := new_client())).expect(201).json
    # Without a token the app doesn't matter.
    client.create(**more).expect(201)
    for call in (lambda: client.put_token(room["roomid"], creator, new_token(), **more),
                 lambda: client.accept(join, new_client(), new_token(), **more)):
        assert call().status == (400 if code == 400 else 200)


def test_malformed_bundle_ids(several):
    client = several.client()
    for value, code in (("", "out_of_range"), ("a" * 256, "out_of_range"), ("örg.example", "out_of_range"), (["org.example.app"], "wrong_type")):
        client.create(token=new_token(), bundleId=value).expect(400, code, "bundleId")


# Starts


def test_a_long_list_is_read_in_linear_time(state):
    """The last line is compared with all before it."""
    key = KEY.replace(" keys/", f" {state.folder.name}/keys/")  # from the list's folder: a list has a megabyte at most

    def seconds(count, *more):
        path = write(state, *(f"org.example.app{number} production,sandbox {key}" for number in range(count)), *more)
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        ran = mayfly("apns", "send", "--apns-apps", path, "--state", state.folder, timeout=120)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime - before.ru_utime, ran.stderr
    few, said = seconds(1_000)
    many, also_said = seconds(10_000)
    assert "the input is empty" in said and "the input is empty" in also_said
    assert many < 25 * few, (few, many)
    assert "line 10001: this app and environment already have a line" in seconds(10_000, f"org.example.app0 sandbox {key}")[1]


BAD_LISTS = [
    ([], "names no app"), (["# nothing"], "names no app"), ([BUNDLE_ID], "line 1"), ([f"{BUNDLE_ID} production"], "line 1"),
    ([f"{BUNDLE_ID} everywhere {KEY}"], "line 1: environments must be"), ([f"{BUNDLE_ID} production, {KEY}"], "line 1: environments must be"),
    (["", f"{BUNDLE_ID} sandbox password x y z"], "line 2"), ([f"{BUNDLE_ID} sandbox key keys/apns.p8 {KEY_ID}"], "line 1"),
    ([f"{BUNDLE_ID} production {KEY}", f"{BUNDLE_ID} sandbox,production {KEY}"], "line 2: this app and environment already have a line"),
    ([f"{BUNDLE_ID} production key nowhere.p8 {KEY_ID} {TEAM_ID}"], "can't be read"),
    ([f"{BUNDLE_ID} production key keys/simulator-ca.pem {KEY_ID} {TEAM_ID}"], "is not an APNs key"),
    ([f"{BUNDLE_ID} production {KEY}", f"org.example.other production key nowhere.p8 {KEY_ID} {TEAM_ID}"], "can't be read"),
    ([f"\ufeff{BUNDLE_ID} production {KEY}"], "line 1"), ([f"{BUNDLE_ID}\x1b[31m production {KEY}"], "is not a bundle id"),
    ([f"{BUNDLE_ID}\0 production {KEY}"], "is not a bundle id"), ([f"örg.example production {KEY}"], "is not a bundle id"),
    ([f"# the apps\r\n{BUNDLE_ID} production {KEY}\r\norg.example.other everywhere {KEY}\r"], "line 3"),
    ([f"{BUNDLE_ID} production key keys/apns.p8 K!Y {TEAM_ID}"], "key id"),
    ([f"{BUNDLE_ID} production key keys/apns.p8 {KEY_ID}1 {TEAM_ID}"], "line 1: the APNs key id must be ten"),
    ([f"{BUNDLE_ID} production key keys/apns.p8 {KEY_ID} {TEAM_ID[1:]}"], "line 1: the APNs team id must be ten"),
    ([f"{BUNDLE_ID} production certificate keys/apns.p8"], "apns.p8")]


def test_bad_lists_are_refused(state):
    """`apns send` reads a list by the same code as a start."""
    for lines, said in BAD_LISTS:
        ran = mayfly("apns", "send", "--apns-apps", write(state, *lines), "--state", state.folder)
        assert ran.returncode != 0 and said in ran.stderr and "Fatal error" not in ran.stderr, (lines, ran)


def test_a_start_refuses_a_bad_list(listed):
    start_fails(listed(f"{BUNDLE_ID} everywhere {KEY}"), "line 1: environments must be")


def test_two_keys_under_one_name_are_refused(listed, tmp_path):
    """The second would never be used, or its app's pushes would be refused."""
    other, same = tmp_path / "other.p8", tmp_path / "same.p8"
    openssl("genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", other)
    other.chmod(0o600)
    start_fails(listed(f"{BUNDLE_ID} production {KEY}", f"org.example.other production key {other} {KEY_ID} {TEAM_ID}"), "line 2", "a different key")
    broker = listed(f"{BUNDLE_ID} production {KEY}", f"org.example.other production key {same} {KEY_ID} {TEAM_ID}")
    same.write_bytes((broker.state / "keys/apns.p8").read_bytes())
    same.chmod(0o600)
    broker.start()
    broker.stop()


def test_an_invalid_bundle_id_is_refused(state, processes):
    for bundle_id in ("org.example.app\n", "org.example_app"):
        broker = Broker(state, apns_bundle_id=bundle_id)
        processes.append(broker)
        start_fails(broker, "is not a bundle id", status=2)


@pytest.mark.parametrize("name, value", [("apns_key_id", KEY_ID[1:]), ("apns_key_id", KEY_ID + "1"), ("apns_team_id", TEAM_ID[1:])])
def test_ids_of_another_length_are_refused(state, processes, name, value):
    broker = Broker(state, **{name: value})
    processes.append(broker)
    start_fails(broker, name.replace("_", "-"), "ten letters and digits", status=2)


def test_send_uses_an_apps_only_environment(several):
    """As `serve` does. Without any account the error says that nothing was sent."""
    apps = write(several.state, f"org.example.other sandbox {KEY}")
    settings = clean_environment(
        MAYFLY_APNS_APPS=apps, MAYFLY_APNS_ENDPOINT=f"127.0.0.1:{several.simulator.port}", MAYFLY_STATE=several.state.folder,
        MAYFLY_APNS_CA=several.state / "keys/simulator-ca.pem")
    token = new_token()
    ran = told_no_token(subprocess.run(
        [BINARY, "apns", "send"], input=token + "\n", capture_output=True, text=True, timeout=40, env=settings))
    assert ran.returncode == 0 and ", sandbox. It is not recorded" in ran.stdout, ran
    assert len(several.simulator.pushes(token)) == 1


def test_send_without_an_account_is_refused(authority, several, tmp_path):
    pem, _ = issued(authority, "unserved", f"/UID={BUNDLE_ID}/CN=Apple Push Services")
    policy = tmp_path / "policy.json"
    rooms = json.loads((REPOSITORY / "policies/rooms.json").read_text()) | {"ledger": {"hourSeconds": 1, "daySeconds": 1, "batchSeals": 1}}
    rooms["templates"]["ring"] = {"pushType": "voip", "priority": 10, "ttlSeconds": 30, "handleKey": "id"}
    policy.write_text(json.dumps(rooms))
    settings = clean_environment(
        MAYFLY_APNS_APPS=write(several.state, f"{BUNDLE_ID} production certificate {pem}"), MAYFLY_POLICY=policy,
        MAYFLY_APNS_ENDPOINT=f"127.0.0.1:{several.simulator.port}", MAYFLY_STATE=several.state.folder,
        MAYFLY_APNS_CA=several.state / "keys/simulator-ca.pem")
    ran = told_no_token(subprocess.run(
        [BINARY, "apns", "send", "ring"], input=new_token() + "\n", capture_output=True, text=True, timeout=40, env=settings))
    said = ran.stdout + ran.stderr
    assert ran.returncode == 1 and "no APNs key or certificate is configured for voip pushes" in said and "nothing was sent" in said
    assert "400" not in said and "apns-id" not in said and "one team" not in said


def test_a_list_beside_flags_for_one_app_is_refused(state, processes):
    broker = Broker(state, apns_apps=write(state, f"{BUNDLE_ID} production {KEY}"))
    processes.append(broker)
    start_fails(broker, "remove --apns-key-path", status=2)
    broker = Broker(state, apns_apps=write(state, f"{BUNDLE_ID} production {KEY}"), **ALONE | {"apns_bundle_id": "org.example.other"})
    processes.append(broker)
    start_fails(broker, "has no line", status=2)


def test_a_start_refuses_bad_certificates(authority, listed, tmp_path):
    pem, p12 = issued(authority, "app", f"/UID={BUNDLE_ID}/CN=Apple Push Services")
    other, _ = issued(authority, "other", "/UID=org.example.other/CN=Apple Push Services")
    (tmp_path / "wrong").write_text("nonsense\n")
    (tmp_path / "right").write_text("secret\n")
    (tmp_path / "windows").write_bytes(b"secret\r\nand more\r\n")
    for line, said in ((f"certificate {p12}", "passphrase"), (f"certificate {p12} {tmp_path}/wrong", "passphrase"),
                       (f"certificate {other}", "org.example.other"), (f"certificate {authority.path}", "key"),
                       (f"certificate {tmp_path}/none", "can't be read")):
        start_fails(listed(f"{BUNDLE_ID} production {line}"), said)
    for line in (f"certificate {p12} {tmp_path}/right", f"certificate {p12} {tmp_path}/windows", f"certificate {pem}"):
        broker = listed(f"{BUNDLE_ID} production {line}")
        broker.start()
        broker.stop()


def test_an_encrypted_key_asks_for_its_passphrase(authority, listed, state, processes):
    """The error names the setting, also for PEM."""
    pem, p12 = issued(authority, "locked", f"/UID={BUNDLE_ID}/CN=Apple Push Services")
    locked = pem.with_suffix(".locked.pem")
    openssl("pkcs8", "-topk8", "-in", pem, "-out", locked, "-passout", "pass:secret")
    locked.write_bytes(pem.with_suffix(".crt").read_bytes() + locked.read_bytes())
    for path in (p12, locked):
        start_fails(listed(f"{BUNDLE_ID} production certificate {path}"), path, "encrypted", "passphrase is missing", "after the certificate in its line")
        broker = Broker(state, **ALONE | {"apns_bundle_id": BUNDLE_ID, "apns_certificate": path})
        processes.append(broker)
        start_fails(broker, path, "encrypted", "--apns-certificate-passphrase")


def test_a_certificate_for_two_apps_serves_both(authority, listed):
    """Apple lists topics in new certificates and two user ids in older ones. Both forms are read."""
    pem, _ = issued(authority, "two", f"/UID=org.example.first/UID={BUNDLE_ID}/CN=Apple Push Services")
    broker = listed(*(f"{topic} production certificate {pem}" for topic in (BUNDLE_ID, "org.example.first")))
    broker.start()
    broker.stop()
    start_fails(listed(f"org.example.third production certificate {pem}"), "org.example.first", BUNDLE_ID)


@pytest.mark.parametrize("marks, environments, said", [
    ([SANDBOX], "production", "for the sandbox only"), ([SANDBOX], "production,sandbox", "for the sandbox only"),
    ([PRODUCTION], "sandbox", "for production only"), ([PRODUCTION], "sandbox,production", "for production only"),
    ([SANDBOX], "sandbox", None), ([PRODUCTION], "production", None), ([SANDBOX, PRODUCTION], "production,sandbox", None)])
def test_a_listed_certificate_for_the_wrong_environment_is_refused(authority, listed, marks, environments, said):
    """Apple would answer each push with BadCertificateEnvironment, so the start fails."""
    name = "marked" + "".join(mark[-1] for mark in marks)
    pem, _ = issued(authority, name, f"/UID={BUNDLE_ID}/CN=Apple Push Services", *marks)
    broker = listed(f"{BUNDLE_ID} {environments} certificate {pem}")
    if said:
        start_fails(broker, "line 1", said)
    else:
        broker.start()
        broker.stop()


def test_the_environment_of_one_certificate_by_flags(authority):
    pem, _ = issued(authority, "sandbox", f"/UID={BUNDLE_ID}/CN=Apple Push Services", SANDBOX)
    with World(start=False, apns=False, **ALONE | {"apns_bundle_id": BUNDLE_ID, "apns_certificate": pem}) as world:
        start_fails(world.broker, "for the sandbox only", "--apns-environment")
        world.broker.options["apns-environment"] = "sandbox"
        world.broker.start()
        for environment, status in ((None, 201), ("sandbox", 201), ("production", 400)):
            more = {"environment": environment} if environment else {}
            assert world.client().create(token=new_token(), **more).status == status, environment


def test_a_policy_that_needs_a_key_is_refused_without_one(authority, listed, tmp_path):
    pem, _ = issued(authority, "calls", f"/UID={BUNDLE_ID}/CN=Apple Push Services")
    policy = tmp_path / "policy.json"
    rooms = json.loads((REPOSITORY / "policies/rooms.json").read_text()) | {"ledger": {"hourSeconds": 1, "daySeconds": 1, "batchSeals": 1}}
    rooms["templates"]["ring"] = {"pushType": "voip", "priority": 10, "ttlSeconds": 30, "handleKey": "id"}
    policy.write_text(json.dumps(rooms))
    start_fails(listed(f"{BUNDLE_ID} production certificate {pem}", policy=policy), "voip", "a key")
    start_fails(listed(f"{BUNDLE_ID} production certificate {pem}", policy="rooms,companion"), "policy companion", "liveactivity", "a key")
    broker = listed(f"{BUNDLE_ID} production certificate {pem}", f"org.example.other production {KEY}", policy=f"{policy},companion")
    broker.start()
    broker.stop()


def test_calls_need_a_key(authority, listed, state):
    """Phones ring by VoIP pushes. With certificates alone a start and a renewal are refused."""
    pem, _ = issued(authority, "rings", f"/UID={BUNDLE_ID}/CN=Apple Push Services")
    certificate, key = f"{BUNDLE_ID} production certificate {pem}", f"org.example.other production {KEY}"
    calls = {"policy": "calls", "jwt_algorithm": "HS256", "jwt_key": state / "keys/jwt.secret", "webhook_secrets": state / "keys/webhook.secret"}
    said = ("the policy calls has the push incoming_call of type voip, which Apple accepts only with a token signing key",
            "there are only certificates. Configure a key, or use another policy")
    start_fails(listed(certificate, **calls), *said)
    broker = listed(apns_certificate=pem, **calls | {"apns_bundle_id": BUNDLE_ID})
    del broker.options["apns-apps"]
    start_fails(broker, *said)
    broker = listed(certificate, key, **calls)
    broker.start()
    write(state, certificate)
    answer = Client(broker.operator_port).send("POST", "/api/config/apns/init").expect(400)
    assert all(text in answer.json["error"] for text in said), answer
    broker.stop()


def test_one_certificate_by_flags(authority, state, processes):
    pem, _ = issued(authority, "flags", f"/UID={BUNDLE_ID}/CN=Apple Push Services")
    broker = Broker(state, apns_certificate=pem)
    processes.append(broker)
    start_fails(broker, "remove --apns-key-path", status=2)
    broker = Broker(state, **ALONE | {"apns_bundle_id": BUNDLE_ID, "apns_certificate": pem})
    processes.append(broker)
    broker.start()
    broker.stop()
