"""Wrong settings: each message names the setting, says what is wrong and what to do, and is printed once."""

import json
import os
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
    "a proxy by name": ({"MAYFLY_TRUSTED_PROXIES": "proxy.example"}, "MAYFLY_TRUSTED_PROXIES", "number 1 of 1 is neither", "Write each proxy's own address"),
    "an origin with a scheme": ({"MAYFLY_ORIGIN": "https://push.example.org/audit"}, "MAYFLY_ORIGIN", "the ledger key is for mayfly.test/log", "Correct --origin, or leave it out"),
    "half of a certificate": ({"MAYFLY_TLS_CERTIFICATE": "/etc/hostname"}, "MAYFLY_TLS_KEY", "is missing", "private key"),
    "a database without a scheme": ({"MAYFLY_DATABASE": "db.example/mayfly"}, "MAYFLY_DATABASE", "must be a path that ends with .sqlite", "postgresql://USER@HOST/NAME"),
    "windows that fit no hour": ({"MAYFLY_RESOLUTION": "7"}, "MAYFLY_RESOLUTION", "doesn't divide", "Choose a divisor"),
    "an operator's listener for all": ({"MAYFLY_OPERATOR_LISTEN": "0.0.0.0:8788"}, "MAYFLY_OPERATOR_LISTEN", "has no authentication", "must be on loopback"),
    "JWTs of the other family": (
        {"MAYFLY_JWT_ALGORITHM": "ES256", "MAYFLY_JWT_KEY": "/etc/hostname"}, "MAYFLY_JWT_KEY", "not", "PEM"),
}


@pytest.mark.parametrize("wrong", TABLE)
def test_an_operator_mends_each_from_its_message(settings, wrong):
    changes, name, what, remedy = TABLE[wrong]
    status, printed = start(settings | changes)
    [line] = [line for line in printed.splitlines() if line.startswith("mayfly: ")]
    assert all(word in line for word in (name, what, remedy)), line
    # A second start would fail, too.
    assert status == 2 or name == "MAYFLY_JWT_KEY", printed


@pytest.mark.parametrize("wrong", [name for name in TABLE if name not in ("a typo in a name", "a database without a scheme")])
def test_a_check_prints_each_once(settings, wrong):
    changes, name, what, remedy = TABLE[wrong]
    [(check, text)] = bad(settings | changes, 1 if name == "MAYFLY_JWT_KEY" else 2)
    assert all(word in text for word in (name, what, remedy)), text
    assert (check == "users") == ("JWT" in name), check


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
    (("sevre",), "serve"), (("chekc",), "check"), (("apns-simulatr",), "apns-simulator"), (("apns", "explain", "BadDeviceTokn"), "BadDeviceToken"),
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
