"""A secret instead of a path, a name or a number: errors end in logs, so they name the setting and never print its value."""

import base64
import itertools
import re
import signal
import subprocess
from secrets import token_bytes, token_urlsafe

import pytest

from certificates import Authority, Certificate
from mayfly import new_token
from processes import BINARY, BUNDLE_ID, KEY_ID, ORIGIN, TEAM_ID, State, clean_environment, free_port, mayfly
from test_apps import issued

# A service's own names for itself: it starts under them.
TAKEN = {"node", "allow-cleartext", "apns-bundle-id"}


class Secrets:
    """By name, and their pieces, by which they are found in whatever form they are printed."""

    LEAST = 12

    def __init__(self, key):
        lines = key.splitlines()[1:-1]
        der = base64.b64decode("".join(lines))
        self.texts = {
            "the key's file": key, "the key in one line": "".join(lines), "the key's number": base64.urlsafe_b64encode(der[36:68]).decode(),
            "a wrapping key": "/" + base64.b64encode(token_bytes(32)).decode()[1:], "a passphrase": f"Tr0ub4dor-{token_urlsafe(8)}",
            "a passphrase behind a slash": f"/Tr0ub4dor-{token_urlsafe(8)}", "a token": new_token(),
            "a provider token": f"eyJhbGciOiJFUzI1NiJ9.{token_urlsafe(40)}.{token_urlsafe(64)}"}
        self.pieces = {
            line[at:at + self.LEAST] for text in self.texts.values() for line in text.splitlines() if not line.startswith("-----")
            for at in range(max(1, len(line) - self.LEAST + 1))}

    def told(self, printed):
        return [piece for piece in self.pieces if piece in printed] or "-----BEGIN" in printed


def settings(*command):
    """{flag: its name in the environment} of a command, as its help has them."""
    return dict(re.findall(r"^  --([a-z-]+) \(([A-Z_]+)\)$", mayfly(*command, "--help").stdout, re.M))


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder, state = tmp_path_factory.mktemp("secrets"), State()
    state.secrets = Secrets((state / "keys/apns.p8").read_text())
    state.pem, state.p12 = issued(Authority(folder, "apple"), "app", f"/UID={BUNDLE_ID}/CN=Apple Push Services")
    state.tls = Certificate(folder)
    (folder / "witnesses").write_text("quorum none\n")
    state.witnesses, state.cwd = folder / "witnesses", folder
    yield state
    state.remove()


def base(state, name):
    """Settings by which a broker starts and the one of this name has a meaning, without that one."""
    flags = {"state": state.folder, "listen": f"127.0.0.1:{free_port()}", "operator-listen": f"127.0.0.1:{free_port()}", "origin": ORIGIN,
             "apns-bundle-id": BUNDLE_ID, "apns-endpoint": f"127.0.0.1:{free_port()}", "apns-ca": state / "keys/simulator-ca.pem"}
    if name == "apns-certificate-passphrase":
        flags |= {"apns-certificate": state.p12}
    elif name not in ("apns-apps", "apns-certificate"):
        flags |= {"apns-key-path": state / "keys/apns.p8", "apns-key-id": KEY_ID, "apns-team-id": TEAM_ID}
    if name.startswith("tls-"):
        flags |= {"tls-certificate": state.tls.path, "tls-key": state.tls.key}
    if name == "witness-failure":
        flags |= {"witness-policy": state.witnesses}
    if name == "apns-port":
        del flags["apns-endpoint"]
    flags.pop(name, None)
    return flags


def run(state, *words, **environment):
    """A command's output and status. A broker that starts is stopped."""
    child = subprocess.Popen(
        [BINARY, *map(str, words)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=state.cwd,
        env=clean_environment(**environment))
    try:
        printed = ""
        for line in child.stdout:
            printed += line
            if " ready: " in line:
                child.send_signal(signal.SIGTERM)
        return printed, child.wait(15)
    finally:
        child.kill()
        child.wait(10)


def flags_of(options):
    return [part for flag, value in options.items() for part in (f"--{flag}", value)]


def starts_with(place, name, variable, what):
    """Passes this secret as a setting of the broker: as a flag, or a key's text in the environment, like `$(cat key.p8)`. Returns whether it started."""
    secret, by_flag = place.secrets.texts[what], what != "the key's file"
    printed, status = run(
        place, "serve", *flags_of(base(place, name)), *([f"--{name}={secret}"] if by_flag else []), **{} if by_flag else {variable: secret})
    assert not place.secrets.told(printed), f"{what} as --{name} is printed"
    if status != 0:
        assert status in (1, 2) and f"--{name}" in printed and len(printed.splitlines()) <= 3, (what, name, printed)
    return status == 0


def test_a_secret_in_each_setting_is_not_printed(place):
    """Each setting of `serve --help` gets one of the secrets."""
    known = settings("serve")
    assert len(known) >= 28 and {"apns-key-path", "wrapping-key", "apns-certificate-passphrase"} <= known.keys()
    started = {name for (name, variable), what in zip(known.items(), itertools.cycle(place.secrets.texts)) if starts_with(place, name, variable, what)}
    assert started <= TAKEN, started


# Promise: no-secret-of-a-setting
@pytest.mark.campaign
def test_no_setting_prints_any_misplaced_secret(place):
    """Each setting of `serve --help` gets each of the secrets."""
    started = {name for name, variable in settings("serve").items() for what in place.secrets.texts if starts_with(place, name, variable, what)}
    assert started <= TAKEN, started


@pytest.mark.campaign
@pytest.mark.parametrize("command", ["check --offline", "apns jwt", "apns send", "apns-simulator", "keys show", "drill", "policy show"])
def test_other_commands_print_no_misplaced_secret(place, command):
    words = command.split()
    known = settings(words[0]) if len(words) == 1 else settings(*words)
    assert known
    given = {name: value for name, value in base(place, "").items() if name in known}
    if command == "apns-simulator":
        given = {"listen": "127.0.0.1:0", "apns-key-path": place / "keys/apns.p8", "apns-key-id": KEY_ID, "apns-team-id": TEAM_ID,
                 "apns-bundle-id": BUNDLE_ID, "certificate": place / "keys/simulator.pem"}
    for name, variable in known.items():
        if command == "apns-simulator" and name in ("apns-key-id", "apns-team-id", "apns-bundle-id", "apns-environment"):
            continue  # it starts with any
        for what in ("the key's file", "the key in one line", "a passphrase", "a token"):
            secret, by_flag = place.secrets.texts[what], what != "the key's file"
            options = {flag: value for flag, value in given.items() if flag != name and not (name == "apns-port" and flag == "apns-endpoint")}
            printed, _ = run(place, *words, *flags_of(options), *([f"--{name}={secret}"] if by_flag else []),
                             **{} if by_flag else {variable: secret})
            assert printed and not place.secrets.told(printed), f"{what} as --{name} of {command} is printed"


OPERANDS = [
    "{}", "--{}", "--{}=x", "serve {}", "serve --{}", "apns {}", "apns send {}", "apns send --field {}", "apns send --field x={}", "apns explain {}",
    "apns token {}", "apns jwt --verify {}", "policy {}", "policy show {}", "policy lint {}", "keys {}", "drill {}", "bench {}",
    "audit {}", "audit verify {} --key VKEY", "audit verify https://user:{}@127.0.0.1:9/ --key VKEY",
    "audit verify LEDGER --key {}", "audit verify LEDGER --key VKEY --since {}", "audit verify LEDGER --key VKEY --policy {}",
    "audit verify --proof {} --key VKEY", "audit verify --proof x --key VKEY --ref {}", "audit prove LEDGER {} --key VKEY",
    "audit show {} --key VKEY", "audit report {} --html x.html",
    "apns-simulator {}", "apns-simulator --certificate SIMULATOR --app {}", "apns-simulator --certificate SIMULATOR --client-ca {}",
    "apns-simulator --certificate SIMULATOR --streams {}"]


# These in `make test`, all of them in `make check`.
FEW = ["serve --{}", "apns send {}", "policy lint {}", "audit verify LEDGER --key {}"]


@pytest.mark.parametrize("form", [*FEW, *(pytest.param(form, marks=pytest.mark.campaign) for form in OPERANDS if form not in FEW)])
def test_secrets_among_the_arguments_are_not_printed(place, form):
    base_settings = dict(MAYFLY_STATE=place.folder, APNS_KEY_PATH=place / "keys/apns.p8", APNS_KEY_ID=KEY_ID, APNS_TEAM_ID=TEAM_ID,
                         APNS_BUNDLE_ID=BUNDLE_ID, MAYFLY_APNS_ENDPOINT="127.0.0.1:9", MAYFLY_APNS_SIMULATOR_LISTEN="127.0.0.1:0")
    names = {"VKEY": place.vkey, "LEDGER": place / "ledger", "SIMULATOR": place / "keys/simulator.pem"}
    for what in ("the key's file", "the key in one line", "a passphrase", "a token", "a provider token"):
        words = [names.get(word, word.format(place.secrets.texts[what])) for word in form.split()]
        printed, status = run(place, *words, **base_settings)
        assert status in (1, 2) and not place.secrets.told(printed), f"{what} in {form!r} is printed"


@pytest.mark.campaign
def test_secrets_in_a_list_are_not_printed(place):
    """A passphrase instead of its file's name, a key's text instead of the key's: the error names the line."""
    for line in (f"{BUNDLE_ID} production key {place / 'keys/apns.p8'} {KEY_ID} {TEAM_ID}", f"{BUNDLE_ID} production certificate {place.p12} none"):
        words = line.split()
        for at in range(len(words)):
            for what, secret in place.secrets.texts.items():
                if what != "the key's file":
                    path = place.prints / "apps.list"
                    path.write_text(" ".join([*words[:at], secret, *words[at + 1:]]) + "\n")
                    printed, status = run(place, "apns", "send", "--state", place.folder, "--apns-apps", path)
                    assert not place.secrets.told(printed), f"{what} as word {at + 1} is printed"
                    assert status == 1 and (at == 0 or "line 1" in printed or "APNS_" in printed), (what, at, printed)
    # The whole key in the place of the list, or as one.
    path.write_text(place.secrets.texts["the key's file"])
    printed, status = run(place, "apns", "send", "--state", place.folder, "--apns-apps", path)
    assert status == 1 and "line 1" in printed and not place.secrets.told(printed)


@pytest.mark.campaign
def test_a_setting_for_a_passphrase_is_never_printed(place):
    """Not even if it looks like a path, as a passphrase may."""
    secret = f"/Tr0ub4dor/{token_urlsafe(8)}"
    path = place.prints / "apps.list"
    path.write_text(f"{BUNDLE_ID} production certificate {place.p12} {secret}\n")
    listed = {name: value for name, value in base(place, "apns-apps").items()} | {"apns-apps": path}
    for options in (base(place, "wrapping-key") | {"wrapping-key": secret}, base(place, "wrapping-key") | {"wrapping-key": f"command:{secret} x"},
                    base(place, "apns-certificate-passphrase") | {"apns-certificate-passphrase": secret}, listed):
        printed, status = run(place, "serve", *flags_of(options))
        assert status == 1 and re.search("wrapping key|passphrase", printed) and "Tr0ub4dor" not in printed, printed
    # Another setting may print such a path, since the operator looks for the file.
    printed, _ = run(place, "serve", *flags_of(base(place, "apns-key-path") | {"apns-key-path": "/srv/mayfly/none.p8"}))
    assert "--apns-key-path (APNS_KEY_PATH): /srv/mayfly/none.p8 can't be read" in printed, printed


def test_the_search_finds_printed_secrets(place):
    for text in place.secrets.texts.values():
        assert place.secrets.told(f"open {text}: no such file")
        assert all(place.secrets.told(line[2:-1]) for line in text.splitlines() if not line.startswith("-----"))
    assert not place.secrets.told("open /tmp/none: no such file")


def test_names_of_missing_files_are_printed(tmp_path):
    """A name with a known extension is no secret. Of another word only the length is printed, with the way to see it."""
    def refused(*words, **environment):
        done = subprocess.run([BINARY, *words], capture_output=True, text=True, timeout=30, cwd=tmp_path, env=clean_environment(**environment))
        assert done.returncode in (1, 2) and len(done.stderr.splitlines()) == 1, done
        return done.returncode, done.stderr
    key = {"APNS_KEY_ID": KEY_ID, "APNS_TEAM_ID": TEAM_ID}
    assert "nope.json can't be read" in refused("policy", "lint", "nope.json")[1]
    assert "AuthKey_ABC123DEFG.p8 doesn't exist below the working directory" in refused("apns", "jwt", APNS_KEY_PATH="AuthKey_ABC123DEFG.p8", **key)[1]
    assert "login.pub doesn't exist" in refused("jwt", "--verify", "--algorithm", "EdDSA", "--key", "login.pub")[1]
    (tmp_path / "log").mkdir()
    missing = refused("audit", "verify", "log", "--key", "nosuch.vkey")
    assert missing[0] == 2 and "nosuch.vkey" in missing[1] and "No such file" in missing[1]
    hidden = refused("audit", "verify", "nosuch", "--key", "example.org/log+6c8f9d2a+AXgBtoCPPFRyJsEHEDCvfEdz7oKQxAOSN1kSC5A6rD3P")
    assert hidden[0] in (1, 2) and "nosuch" not in hidden[1]
