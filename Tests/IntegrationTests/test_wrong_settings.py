"""Wrong settings: each message names the setting, says what is wrong and what to do, and is printed once."""

import json
import os
import shutil
import socket
import subprocess

import pytest

from processes import BINARY, BUNDLE_ID, KEY_ID, TEAM_ID, clean_environment, free_port, mayfly


@pytest.fixture
def settings(state):
    """The settings of a broker that would start."""
    return {
        "MAYFLY_STATE": state.folder, "MAYFLY_LISTEN": f"127.0.0.1:{free_port()}", "MAYFLY_OPERATOR_LISTEN": f"127.0.0.1:{free_port()}",
        "APNS_KEY_PATH": state / "keys/apns.p8", "APNS_KEY_ID": KEY_ID, "APNS_TEAM_ID": TEAM_ID, "APNS_BUNDLE_ID": BUNDLE_ID}


def start(settings, *words):
    """A start that must fail by itself: its exit status and its lines."""
    ran = mayfly("serve", *words, timeout=20, **{name: value for name, value in settings.items() if value is not None})
    return ran.returncode, ran.stderr


def bad(settings, status):
    """The bad lines of `mayfly check`: [(check, text)]."""
    ran = mayfly("check", "--offline", "--json", **{name: value for name, value in settings.items() if value is not None})
    assert ran.returncode == status, ran.stdout + ran.stderr
    return [(line["check"], line["text"]) for line in json.loads(ran.stdout) if line["result"] == "bad"]


# What an operator wrote; the name of the setting; what is wrong; what to do.
TABLE = {
    "a typo in a name": ({"MAYFLY_LISEN": "127.0.0.1:8787"}, "MAYFLY_LISEN", "is not a setting", "Did you mean MAYFLY_LISTEN?"),
    "a port alone": ({"MAYFLY_LISTEN": "8787"}, "MAYFLY_LISTEN", "must be ADDRESS:PORT", "e.g. 127.0.0.1:8787"),
    "every address": ({"MAYFLY_LISTEN": "0.0.0.0:8787"}, "MAYFLY_LISTEN", "beyond loopback", "--tls-certificate"),
    "root's copy of the key": (
        {"APNS_KEY_PATH": "/etc/mayfly/credentials/apns.p8"}, "APNS_KEY_PATH", "only root", "set this to /run/credentials/mayfly.service/file_apns.p8"),
    "the key's file as its id": ({"APNS_KEY_ID": "AuthKey_ABC123DEFG.p8"}, "APNS_KEY_ID", "ten letters and digits", "in the name of the .p8 file"),
    "no team": ({"APNS_TEAM_ID": None}, "APNS_TEAM_ID", "is missing", "10 characters"),
    "another word for an environment": ({"APNS_ENVIRONMENT": "prod"}, "APNS_ENVIRONMENT", "must be", "production, sandbox or development"),
    "a policy that isn't there": (
        {"MAYFLY_POLICY": "companoin"}, "MAYFLY_POLICY", "neither a policy file nor a built-in policy",
        "Did you mean companion? Built in are rooms, companion, monitor, calls and trial"),
    "users without a key": ({"MAYFLY_JWT_ALGORITHM": "HS256"}, "MAYFLY_JWT_ALGORITHM", "needs", "--jwt-key"),
    "a proxy by name": ({"MAYFLY_TRUSTED_PROXIES": "proxy.example"}, "MAYFLY_TRUSTED_PROXIES", "number 1 of 1 is neither", "own address, not its name"),
    "an origin with a scheme": ({"MAYFLY_ORIGIN": "https://push.example.org/audit"}, "MAYFLY_ORIGIN", "the ledger key is for mayfly.test/log", "Correct --origin, or leave it out"),
    "half of a certificate": ({"MAYFLY_TLS_CERTIFICATE": "/etc/hostname"}, "MAYFLY_TLS_KEY", "is missing", "private key"),
    "a database without a scheme": ({"MAYFLY_DATABASE": "db.example/mayfly"}, "MAYFLY_DATABASE", "must be a path that ends with .sqlite", "postgresql://USER@HOST/NAME"),
    "windows that fit no hour": ({"MAYFLY_RESOLUTION": "7"}, "MAYFLY_RESOLUTION", "doesn't divide", "Choose a divisor"),
    "an operator's listener for all": ({"MAYFLY_OPERATOR_LISTEN": "0.0.0.0:8788"}, "MAYFLY_OPERATOR_LISTEN", "has no authentication", "must be on loopback"),
    "JWTs of the other family": (
        {"MAYFLY_JWT_ALGORITHM": "ES256", "MAYFLY_JWT_KEY": "/etc/hostname"}, "MAYFLY_JWT_KEY", "not", "PEM"),
    "a file as the state": ({"MAYFLY_STATE": "/etc/hostname"}, "MAYFLY_STATE", "is a file, not a folder", "Correct it"),
    "a policy's file that isn't there": (
        {"MAYFLY_POLICY": "/nowhere/rooms.json"}, "MAYFLY_POLICY", "/nowhere/rooms.json doesn't exist. Built in", "rooms, companion, monitor, calls and trial"),
    "a policy with shorter hours": (
        {"MAYFLY_POLICY": "trial"}, "MAYFLY_RESOLUTION", "is missing, and its default, 60, doesn't divide ledger.hourSeconds of the policy trial, 10",
        "Set it to a divisor"),
    "everybody as a proxy": ({"MAYFLY_TRUSTED_PROXIES": "10.0.0.7,0.0.0.0/0"}, "MAYFLY_TRUSTED_PROXIES", "number 2 of 2 has the prefix /0", "a smaller network"),
    "a prefix beyond the address": ({"MAYFLY_TRUSTED_PROXIES": "10.0.0.0/33"}, "MAYFLY_TRUSTED_PROXIES", "has a wrong prefix", "1 to 32"),
    "a proxy with its port": ({"MAYFLY_TRUSTED_PROXIES": "10.0.0.7:80"}, "MAYFLY_TRUSTED_PROXIES", "has a port", "Leave the port out"),
    "a back end by name": ({"MAYFLY_BACKENDS": "10.0.0.8,backend.example"}, "MAYFLY_BACKENDS", "number 2 of 2 is neither", "own address, not its name"),
    "a path that a shell replaces": ({"APNS_KEY_PATH": "~/apns.p8"}, "APNS_KEY_PATH", "begin with ~, which only a shell replaces", "write an absolute path"),
    "a path in quotation marks": ({"APNS_KEY_PATH": '"/etc/apns.p8"'}, "APNS_KEY_PATH", "in quotation marks", "remove them"),
    "a path with a blank": ({"APNS_KEY_PATH": "/nowhere/apns.p8 "}, "APNS_KEY_PATH", "end with a blank", "remove it"),
    "a database below nothing": (
        {"MAYFLY_DATABASE": "/nowhere/below/mayfly.sqlite"}, "MAYFLY_DATABASE", "the folder /nowhere/below doesn't exist", "correct the path"),
}
# A file or folder may appear later, with a mount. Then the same start succeeds.
MAY_PASS_LATER = "JWTs of the other family", "a path with a blank", "a database below nothing"


@pytest.mark.parametrize("wrong", TABLE)
def test_an_operator_mends_each_from_its_message(settings, wrong):
    changes, name, what, remedy = TABLE[wrong]
    status, printed = start(settings | changes)
    [line] = [line for line in printed.splitlines() if line.startswith("mayfly: ")]
    assert all(word in line for word in (name, what, remedy)), line
    # A second start would fail, too.
    assert status == (1 if wrong in MAY_PASS_LATER else 2), printed


@pytest.mark.parametrize("wrong", [name for name in TABLE if name not in ("a typo in a name", "a database without a scheme")])
def test_a_check_prints_each_once(settings, wrong):
    changes, name, what, remedy = TABLE[wrong]
    [(check, text)] = bad(settings | changes, 1 if wrong in MAY_PASS_LATER else 2)
    assert all(word in text for word in (name, what, remedy)), text
    assert (check == "users") == ("JWT" in name), check


@pytest.mark.parametrize("name", ["MAYFLY_LISTEN", "MAYFLY_OPERATOR_LISTEN"])
def test_an_address_where_nobody_can_listen(settings, name):
    """It is taken, or of another machine, or in no folder."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        status, printed = start(settings | {name: address})
    assert status == 1 and f"({name}): {address} is in use: another program listens there. Find it with `ss -ltnp`, or choose another port" in printed, printed
    if name == "MAYFLY_LISTEN":
        status, printed = start(settings | {name: "192.0.2.77:8787", "MAYFLY_ALLOW_CLEARTEXT": "192.0.2.77"})
        assert status == 1 and f"({name}): can't listen on 192.0.2.77:8787: this machine doesn't have that address" in printed, printed
        assert printed.splitlines()[-1].count("192.0.2.77") == 1, printed
        status, printed = start(settings | {name: "unix:/nowhere/mayfly.sock"})
        assert status == 1 and f"({name}): can't listen on unix:/nowhere/mayfly.sock: its folder doesn't exist" in printed, printed


def test_webhooks_without_a_policy(settings, tmp_path):
    """Only what is missing is named."""
    secret = tmp_path / "secret"
    secret.write_text("0123456789" * 4)
    secret.chmod(0o600)
    for policy, algorithm in (("rooms", None), ("rooms", "HS256"), (None, None)):
        given = settings | {"MAYFLY_WEBHOOK_SECRETS": secret, "MAYFLY_POLICY": policy} | (
            {"MAYFLY_JWT_ALGORITHM": algorithm, "MAYFLY_JWT_KEY": secret} if algorithm else {})
        ran = mayfly("check", "--offline", "--json", **{name: value for name, value in given.items() if value is not None})
        [text] = [line["text"] for line in json.loads(ran.stdout) if "no policy for calls" in line["text"]]
        assert ("--jwt-algorithm (MAYFLY_JWT_ALGORITHM)" in text, "add calls to --policy" in text) == (not algorithm, bool(policy)), text
        assert [line["text"] for line in json.loads(ran.stdout) if line["check"] == "webhooks"] == ["1 secret"], ran


@pytest.mark.parametrize("given, meant", [
    ("https://push.example.org/audit", "push.example.org/audit"), ("HTTPS://push.example.org:8443/audit/", "push.example.org:8443/audit"),
    ("https://user:Tr0ub4dor@push.example.org/audit", None), ("/push.example.org", "push.example.org"), ("push.example.org/", "push.example.org"),
    ("push.example.org//audit", "push.example.org/audit"), ("a b/audit", None), ("/", None), ("push.example.org:port/audit", None),
    ("push.example.org/audit?x", None), ("user@push.example.org", None)])
def test_an_origin_that_no_auditor_can_use(tmp_path, given, meant):
    """It can't be changed later."""
    ran = mayfly("keys", "init", "--state", tmp_path / "state", "--origin", given)
    assert ran.returncode == 2 and "--origin (MAYFLY_ORIGIN)" in ran.stderr and not (tmp_path / "state").exists(), ran
    assert ("begins with a scheme" in ran.stderr) == ("://" in given) and "Tr0ub4dor" not in ran.stderr, ran
    assert meant is None and "Write push" not in ran.stderr or f"Write {meant}\n" in ran.stderr, ran


@pytest.mark.parametrize("given", ["push.example.org/audit", "push.example.org", "localhost:8787/audit", "203.0.113.7/logs/2026"])
def test_an_origin_is_host_and_path(tmp_path, given):
    ran = mayfly("keys", "init", "--state", tmp_path / "state", "--origin", given)
    assert ran.returncode == 0 and f"Auditors need: {given}+" in ran.stdout, ran


def state_lines(settings):
    ran = mayfly("check", "--offline", "--json", **settings)
    return [(line["result"], line["text"]) for line in json.loads(ran.stdout) if line["check"] in ("state", "log key")]


def test_the_logs_key_that_others_have(state, settings):
    key = state / "keys/ledger.key"
    key.chmod(0o644)
    status, printed = start(settings)
    said = f"{key} has mode 0644, so others could read it. Set it to 0600. If others have an account here, make another key with `mayfly keys rotate`"
    assert status == 1 and said in printed and ("bad", said) in state_lines(settings), printed
    if os.geteuid() == 0:
        key.chmod(0o600)
        os.chown(key, 65534, 65534)
        status, printed = start(settings)
        said = f"{key} belongs to user 65534, not to the present user (0). Run this as that user, or chown it"
        assert status == 1 and said in printed and ("bad", said) in state_lines(settings), printed


@pytest.mark.parametrize("mode, result, access", [
    (0o755, "warning", "list"), (0o711, "warning", "enter"), (0o733, "bad", "change"), (0o777, "bad", "change"), (0o770, "bad", "change")])
def test_a_folder_that_others_can_use(state, settings, mode, result, access):
    """A start says the same."""
    for folder in (state.folder, state / "keys"):
        folder.chmod(mode)
        said = f"other users can {access} {folder} (mode {mode:04o}). Set its mode to 0700"
        assert (result, said) in state_lines(settings), state_lines(settings)
        status, printed = start(settings | {"MAYFLY_LISTEN": "unix:/nowhere/mayfly.sock"})
        assert status == 1 and f"warning: {said}" in printed, printed
        folder.chmod(0o700)


def test_a_folder_of_another_user(state, settings, open_folder):
    """Its owner can replace the keys, whatever the modes. Root may look at a service's folder."""
    if os.geteuid() != 0:
        pytest.skip("NOT TESTED: another user needs root")
    copy = open_folder / "state"
    shutil.copytree(state.folder, copy)
    given = settings | {"MAYFLY_STATE": copy, "APNS_KEY_PATH": copy / "keys/apns.p8"}
    for path in (copy, *copy.rglob("*")):
        os.chown(path, 65534, 65534)
    os.chown(copy, 65533, 65534)
    copy.chmod(0o770)
    text = f"{copy} belongs to user 65533, who can read and replace what is in it. Run this as that user"
    assert ("warning", f"{text}: it can't use what root makes there") in state_lines(given), state_lines(given)
    ran = subprocess.run(
        ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", BINARY, "check", "--offline", "--json"],
        capture_output=True, text=True, timeout=30, env=clean_environment(**given))
    [line] = [line for line in json.loads(ran.stdout) if line["check"] == "state" and line["result"] == "bad"]
    assert line["text"].startswith(f"{text}, or chown it") and ran.returncode == 1, ran


def test_a_key_that_others_can_read(state, settings):
    (state / "keys/apns.p8").chmod(0o644)
    ran = mayfly("check", "--offline", **settings)
    assert f"--apns-key-path (APNS_KEY_PATH): other users can read {state / 'keys/apns.p8'}" in ran.stdout, ran


@pytest.mark.parametrize("words, flag", [
    (("serve", "--policy", "rooms", "--policy", "trial"), "policy"), (("check", "--listen=127.0.0.1:1", "--listen", "127.0.0.1:2"), "listen"),
    (("audit", "verify", "/nowhere", "--key", "a", "--key", "b"), "key"), (("apns-simulator", "--listen", "127.0.0.1:1", "--listen", "127.0.0.1:2"), "listen")])
def test_a_flag_that_is_given_twice(words, flag):
    ran = mayfly(*words)
    assert ran.returncode == 2 and ran.stderr == f"mayfly: --{flag} is given twice. Remove one of them\n", ran


def test_the_last_line_of_a_check_is_alike(settings):
    """Whatever its status."""
    for changes, status in (({"MAYFLY_DATABASE": "/nowhere/below/mayfly.sqlite"}, 1), ({"MAYFLY_RESOLUTION": "soon"}, 2)):
        ran = mayfly("check", "--offline", **settings | changes)
        assert ran.returncode == status and ran.stderr == "1 check is bad\n", ran


def test_faults_of_jwts_and_webhooks_are_their_own(settings, tmp_path):
    """Not those of the policies, which are good."""
    secret = tmp_path / "secret"
    secret.write_text("short\n")
    secret.chmod(0o644)
    for changes, check in (
            ({"MAYFLY_JWT_ALGORITHM": "HS265", "MAYFLY_JWT_KEY": secret}, "users"), ({"MAYFLY_JWT_KEY": secret}, "users"),
            ({"MAYFLY_JWT_ALGORITHM": "HS256", "MAYFLY_JWT_KEY": secret}, "users"),
            ({"MAYFLY_JWT_ALGORITHM": "HS256", "MAYFLY_JWT_KEY": "nope", "MAYFLY_POLICY": "companion"}, "users"),
            ({"MAYFLY_WEBHOOK_SECRETS": secret}, "webhooks")):
        found = mayfly("check", "--offline", "--json", **settings | changes)
        lines = [(line["check"], line["result"]) for line in json.loads(found.stdout)]
        assert [name for name, result in lines if result == "bad"] == [check] and ("policies", "bad") not in lines, (changes, found.stdout)


@pytest.mark.parametrize("damage, check", [
    (lambda state: state.folder.rename(state.folder.with_name("moved")), "state"),
    (lambda state: (state / "keys/ledger.key").unlink(), "keys"), (lambda state: (state / "keys/ratchet.key").unlink(), "keys")],
    ids=["no folder", "no log key", "no ratchet key"])
def test_a_missing_folder_or_key_is_one_fault(state, settings, damage, check):
    damage(state)
    settings["APNS_KEY_PATH"] = "/nowhere/apns.p8"
    found = bad(settings, 1)
    assert [name for name, _ in found] == [check, "apns"], found


NAMES = {
    "MAYFLY_LISEN": "MAYFLY_LISTEN", "MAYFLY_TRUSTED_PROXY": "MAYFLY_TRUSTED_PROXIES", "MAYFLY_JWT_JWK": "MAYFLY_JWT_JWKS",
    "MAFLY_STATE": "MAYFLY_STATE", "APNS_KEYID": "APNS_KEY_ID", "APNS_ENVIROMENT": "APNS_ENVIRONMENT", "APNS_BUNDEL_ID": "APNS_BUNDLE_ID",
    "COMETCHAT_WEBHOOK_SECRETS": "COMETCHAT_WEBHOOK_SECRET", "MAYFLY_APNS_CERTIFICATE_PASSPHRAS": "MAYFLY_APNS_CERTIFICATE_PASSPHRASE"}


@pytest.mark.parametrize("typo", NAMES)
def test_a_typo_in_a_variable(settings, typo):
    status, printed = start(settings | {typo: "s3cret-value"})
    assert status == 2 and f"{typo} is not a setting of Mayfly. Did you mean {NAMES[typo]}?" in printed, printed
    assert "s3cret" not in printed and len(printed.splitlines()) == 1, printed


def test_other_programs_variables_are_no_typos(settings):
    """Only MAYFLY_ is Mayfly's alone. The last setting is wrong, so that the start ends."""
    status, printed = start(settings | {
        "APNS_HOST": "x", "APNS_AUTH_KEY": "x", "APNS_TOPIC": "x", "STATE": "x", "LISTEN": "x", "COMETCHAT_APP_ID": "x", "MAYFLY_RESOLUTION": "soon"})
    assert status == 2 and "MAYFLY_RESOLUTION" in printed and "not a setting" not in printed, printed
    status, printed = start(settings | {"MAYFLY_ENTIRELY_OTHER": "x"})
    assert status == 2 and "MAYFLY_ENTIRELY_OTHER is not a setting of Mayfly: `mayfly serve --help` lists them" in printed and "mean" not in printed


@pytest.mark.parametrize("words, meant", [
    (("serve", "--lisen", "x"), "--listen"), (("serve", "--trusted-proxy=x"), "--trusted-proxies"), (("check", "--ofline"), "--offline"),
    (("apns", "send", "--feild", "a=b"), "--field"), (("jwt", "--algoritm", "x"), "--algorithm"), (("audit", "watch", "--max-ago", "3"), "--max-age"),
    (("serve", "--polcies", "x"), "--policy"), (("serve", "--policies", "x"), "--policy"), (("serve", "--state-dir", "x"), "--state"),
    (("serve", "--webhook", "x"), "--webhook-secrets"), (("sevre",), "serve"), (("chekc",), "check"), (("apns-simulatr",), "apns-simulator"), (("apns", "explain", "BadDeviceTokn"), "BadDeviceToken"),
    (("policy", "show", "romos"), "rooms"), (("audit", "verfy"), "verify"), (("keys", "inti"), "init"), (("policy", "lnit"), "lint"), (("apns", "chekc"), "check")])
def test_a_typo_on_the_command_line(words, meant):
    ran = mayfly(*words)
    assert ran.returncode == 2 and f"Did you mean {meant}?" in ran.stderr and not ran.stdout, ran
    assert "usage" not in ran.stderr or words[0] in ("sevre", "chekc", "apns-simulatr"), ran.stderr


def test_a_typo_in_a_policy_is_one_finding(tmp_path):
    """The meant name is not reported as missing beside it."""
    rooms = mayfly("policy", "show", "rooms")
    assert rooms.returncode == 0
    from test_startup_errors import POLICIES, lint
    for typo, meant, path in (
            ("knockThrotleSeconds", "knockThrottleSeconds", "$.limits."), ("ttlSecond", "ttlSeconds", "$.templates.peer_waiting."),
            ("lifeSecond", "lifeSeconds", "$.limits.joinCode."), ("templats", "templates", "$."), ("batchSeal", "batchSeals", "$.ledger.")):
        text = (POLICIES / "rooms.json").read_text()
        assert f'"{meant}"' in text
        done = lint(tmp_path, text.replace(f'"{meant}"', f'"{typo}"', 1))
        assert done.returncode == 1 and f"{path}{typo}: is an unknown key" in done.stdout and f"write {meant}" in done.stdout, done.stdout
        assert "1 finding" in done.stderr and "missing" not in done.stdout, done.stdout + done.stderr
    # A name that is there is not meant.
    done = lint(tmp_path, text.replace('"batchSeals"', '"daySecond": 1, "batchSeals"', 1))
    assert "is an unknown key" in done.stdout and "write daySeconds" not in done.stdout and "use one of" in done.stdout, done.stdout


def test_a_typo_in_an_apps_name(state, settings, tmp_path):
    """The default app is none of the list."""
    (tmp_path / "apps").write_text(f"{BUNDLE_ID} production key {state / 'keys/apns.p8'} {KEY_ID} {TEAM_ID}\n")
    wrong = BUNDLE_ID.replace("example", "exmaple")
    alone = {"APNS_KEY_PATH": None, "APNS_KEY_ID": None, "APNS_TEAM_ID": None}
    status, printed = start(settings | alone | {"MAYFLY_APNS_APPS": tmp_path / "apps", "APNS_BUNDLE_ID": wrong})
    assert status == 2 and "no line for the default app" in printed and f"Did you mean {BUNDLE_ID}?" in printed, printed


@pytest.mark.parametrize("name", ["APNS_KEY_PATH", "MAYFLY_APNS_CERTIFICATE", "MAYFLY_APNS_APPS", "MAYFLY_APNS_CA", "MAYFLY_JWT_KEY", "MAYFLY_WEBHOOK_SECRETS",
                                  "MAYFLY_TLS_KEY", "MAYFLY_WRAPPING_KEY"])
def test_roots_copy_of_a_credential(settings, name):
    """The service has a copy elsewhere, and no retry would find it in root's folder."""
    alone = {"APNS_KEY_PATH": None, "APNS_KEY_ID": None, "APNS_TEAM_ID": None} if name in ("MAYFLY_APNS_CERTIFICATE", "MAYFLY_APNS_APPS") else {}
    others = {"MAYFLY_JWT_KEY": {"MAYFLY_JWT_ALGORITHM": "ES256"}, "MAYFLY_TLS_KEY": {"MAYFLY_TLS_CERTIFICATE": "/etc/mayfly/credentials/mine.pem"}}.get(name, {})
    given = settings | alone | others | {name: "/etc/mayfly/credentials/mine.pem"}
    status, printed = start(given)
    assert status == 2 and "/run/credentials/mayfly.service/file_mine.pem" in printed, printed
    # Where systemd says so.
    status, printed = start(given | {"CREDENTIALS_DIRECTORY": "/run/elsewhere"})
    assert status == 2 and "/run/elsewhere/file_mine.pem" in printed, printed


def test_keys_init_says_how_to_make_the_folder(open_folder):
    """A user who may not write above it, as below /var/lib."""
    if os.geteuid() != 0:
        pytest.skip("NOT TESTED: another user needs root")
    above = open_folder / "lib"
    above.mkdir(mode=0o755)
    ran = subprocess.run(
        ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", BINARY, "keys", "init", "--state", above / "mayfly", "--origin", "mayfly.test/log"],
        capture_output=True, text=True, timeout=30, env=clean_environment())
    assert ran.returncode == 1 and f"`install -d -m 700 -o USER -g USER {above / 'mayfly'}`" in ran.stderr, ran
    assert "Permission denied" in ran.stderr and not list(above.iterdir())
