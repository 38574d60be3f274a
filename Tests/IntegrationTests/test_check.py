"""`mayfly check`: each of its lines, good and bad, and that it changes nothing."""

import json
import os
import re
import shutil
import sqlite3
import subprocess
import time
from pathlib import Path

import pytest

from certificates import Authority, openssl
from mayfly import Client
from nodes import Deployment
from processes import BINARY, BUNDLE_ID, Broker, State, clean_environment, eventually, free_port, mayfly, quick_rooms
from test_startup_errors import start_fails
from world import World

NAMES = ["logging", "listeners", "proxies", "policies", "users", "webhooks", "state", "disk", "database", "keys", "clock", "witnesses", "log key", "copies", "log", "memory", "swap",
         "descriptors", "web push", "apns", "certificates"]


def check(broker, *words, status=0, prefix=(), **changes):
    """Runs the check with the broker's settings. Returns {name: (result, text)}."""
    options = broker.options | {name.replace("_", "-"): value for name, value in changes.items()}
    flags = [part for name, value in options.items() if value is not None for part in (f"--{name}", value)]
    done = subprocess.run(
        [*prefix, BINARY, "check", "--json", *words, *map(str, flags)], capture_output=True, text=True, timeout=60, cwd=broker.cwd, env=clean_environment())
    assert done.returncode == status, done.stdout + done.stderr
    lines = json.loads(done.stdout)
    assert all(line.keys() == {"check", "result", "text"} and line["text"] for line in lines), lines
    return {line["check"]: (line["result"], line["text"]) for line in lines}


def check_all(broker, *words, status=0, environment={}, **changes):
    """The same, with all lines: [(name, result, text)]."""
    options = broker.options | {name.replace("_", "-"): value for name, value in changes.items()}
    flags = [part for name, value in options.items() if value is not None for part in (f"--{name}", value)]
    done = subprocess.run(
        [BINARY, "check", "--json", *words, *map(str, flags)], capture_output=True, text=True, timeout=60, cwd=broker.cwd, env=clean_environment(**environment))
    assert done.returncode == status, done.stdout + done.stderr
    return [(line["check"], line["result"], line["text"]) for line in json.loads(done.stdout)]


def bad(found):
    return {name for name, (result, _) in found.items() if result == "bad"}


def content(state):
    """Every file's bytes but those that SQLite makes beside the database for any reader."""
    return {path: path.read_bytes() for path in state.folder.rglob("*") if path.is_file() and not path.name.endswith(("-wal", "-shm"))}


@pytest.fixture(scope="module")
def stopped():
    """A state folder on which a broker has run, and its simulator, which still runs."""
    with World() as world:
        client = Client(world.broker.port)
        client.room()
        client.close()
        assert world.broker.stop() == 0
        yield world


def test_a_sound_broker_is_good(stopped):
    before = content(stopped.state)
    found = check(stopped.broker)
    assert list(found) == NAMES and not bad(found)
    for name in ("listeners", "policies", "users", "database", "keys", "clock", "witnesses", "log key", "log", "memory", "descriptors", "apns", "certificates"):
        assert found[name][0] == "good", (name, found[name])
    assert "signed by this key" in found["log"][1]
    # The simulator is not Apple.
    assert f"127.0.0.1:{stopped.simulator.port} (--apns-endpoint, not Apple) accepts key or certificate, and topic" in found["apns"][1], found
    assert "no proxy is trusted" in found["proxies"][1]
    assert content(stopped.state) == before


def test_the_text_is_for_people(stopped):
    flags = [str(part) for name, value in stopped.broker.options.items() for part in (f"--{name}", value)]
    done = subprocess.run(
        [BINARY, "check", "--offline", *flags], capture_output=True, text=True, timeout=30, cwd=stopped.broker.cwd, env=clean_environment())
    assert done.returncode == 0 and not done.stderr, done.stderr
    lines = done.stdout.splitlines()
    assert [line[9:22].strip() for line in lines] == NAMES
    assert {line.split()[0] for line in lines} <= {"good", "warning"}
    assert stopped.broker.options["apns-bundle-id"] in lines[-2] and "not asked" in lines[-2]
    assert lines[-1].split()[:2] == ["good", "certificates"] and "expires in 36" in lines[-1]


def test_beside_a_running_broker(worlds):
    world = worlds()
    client = Client(world.broker.port)
    for _ in range(5):
        client.room()
        assert not bad(check(world.broker))
    client.room()


def test_before_the_first_start(state):
    found = check(Broker(state), "--offline")
    assert not bad(found) and "first start" in found["database"][1] and "log" not in found


@pytest.mark.parametrize("name, status, damage", [
    ("keys", 1, lambda state: (state / "keys/ratchet.key").chmod(0o640)),
    ("keys", 1, lambda state: (state / "keys/ratchet.key").unlink()),
    ("keys", 1, lambda state: (state / "keys/ratchet.key").write_bytes(b"no key")),
    ("log key", 1, lambda state: (state / "keys/ledger.key").chmod(0o604)),
    ("database", 1, lambda state: (state / "mayfly.sqlite").write_bytes(os.urandom(8192))),
    ("log", 1, lambda state: (state / "ledger/checkpoint").write_text("not a checkpoint\n")),
    ("log", 1, lambda state: shutil.rmtree(state / "ledger")),
], ids=["key mode", "no key", "damaged key", "ledger key mode", "database", "checkpoint", "no folder"])
def test_what_a_start_refuses_is_bad(stopped, tmp_path, name, status, damage):
    """Serve refuses the same, in the same words."""
    broker = copied(stopped, tmp_path)
    damage(broker.state)
    found = check(broker, "--offline", status=status)
    assert name in bad(found), found
    broker.start(wait=False)
    assert broker.child.wait(15) == status
    # A start ends at the first fault. SQLite finds it in another call.
    assert any(found[one][1].split(" (code")[0] in broker.printed() for one in bad(found)), (found, broker.printed())


def copied(stopped, tmp_path):
    state = State(tmp_path, keys=None)
    for suffix in ("-wal", "-shm"):
        (stopped.state / f"mayfly.sqlite{suffix}").unlink(missing_ok=True)
    shutil.copytree(stopped.state.folder, state.folder)
    return Broker(state, apns_port=stopped.simulator.port)


def test_a_stale_key_file_is_bad(stopped, tmp_path):
    broker = copied(stopped, tmp_path)
    old = (broker.state / "keys/ratchet.key").read_bytes()
    broker.start(clock_offset=1000)
    assert broker.stop() == 0
    (broker.state / "keys/ratchet.key").write_bytes(old)
    found = check(broker, "--offline", status=1)
    assert bad(found) == {"keys"} and "stale_keys" in found["keys"][1]


def test_a_clock_that_is_behind_is_a_warning(stopped, tmp_path):
    broker = copied(stopped, tmp_path)
    broker.start(clock_offset=7_200)
    assert broker.stop() == 0
    found = check(broker, "--offline")
    assert found["clock"][0] == "warning" and "behind" in found["clock"][1]


def test_a_copy_ahead_of_the_log_is_bad(stopped, tmp_path):
    broker = copied(stopped, tmp_path)
    broker.start()
    assert broker.stop() == 0
    assert "continues its copy" in check(broker, "--offline", ledger_mirror=stopped.state / "ledger")["log"][1]
    found = check(stopped.broker, "--offline", status=1, ledger_mirror=broker.state / "ledger")
    assert bad(found) == {"log"} and "restored_state" in found["log"][1]


def test_a_copy_that_cannot_be_read_is_a_warning(stopped, tmp_path):
    """A broker starts, and signs nothing until it can."""
    found = check(stopped.broker, "--offline", ledger_mirror=tmp_path)
    assert found["log"][0] == "warning" and "can't be read" in found["log"][1]


@pytest.mark.parametrize("setting, value, name", [
    ("origin", "mayfly.test/other", "log key"), ("apns-key-id", "ABC", "apns"), ("listen", "127.0.0.1", "listeners"),
    ("listen", "192.0.2.1:8787", "listeners"), ("policy", "nope", "policies"), ("trusted-proxies", "proxy.example", "proxies"),
    ("witness-failure", "open", "witnesses"), ("apns-key-path", "nope.p8", "apns"), ("cors-origins", "https://app.example/", "listeners"),
    ("backend-creations", "0", "proxies"), ("log-level", "loud", "logging"), ("ledger-mirror", "nope", "copies")])
def test_an_invalid_setting_is_bad_use(stopped, setting, value, name):
    """A start ends with the same status and words."""
    found = check(stopped.broker, "--offline", status=2, **{setting: value})
    assert bad(found) == {name}, found
    broker = Broker(stopped.state, apns_port=stopped.simulator.port, **{setting: value})
    broker.start(wait=False)
    assert broker.child.wait(15) == 2 and found[name][1] in broker.printed(), broker.printed()


def test_what_only_a_start_opens(stopped, tmp_path):
    authorities = tmp_path / "authorities.pem"
    authorities.write_text("nothing")
    found = check(stopped.broker, "--offline", status=1, apns_ca=authorities)
    assert bad(found) == {"apns"} and str(authorities) in found["apns"][1]
    address = f"127.0.0.1:{free_port()}"
    found = check(stopped.broker, "--offline", status=2, listen=address, operator_listen=address)
    assert bad(found) == {"listeners"} and "differ" in found["listeners"][1]


def test_bad_use_checks_nothing(stopped):
    for words in (["--unheard-of", "1"], ["state"], ["--listen"]):
        done = mayfly("check", *words)
        assert done.returncode == 2 and not done.stdout and len(done.stderr.splitlines()) == 1, done


def test_apple_is_asked_unless_offline(stopped):
    stopped.simulator.fault(status=403, reason="InvalidProviderToken")
    try:
        found = check(stopped.broker, status=1)
        assert bad(found) == {"apns"} and "InvalidProviderToken" in found["apns"][1]
        assert not bad(check(stopped.broker, "--offline"))
    finally:
        stopped.simulator.fault()
    text = check(stopped.broker, status=1, apns_endpoint=f"127.0.0.1:{free_port()}")["apns"][1]
    assert "did not judge" in text and "unreachable" in text and "accept" not in text


def test_files_and_folders_that_others_can_read_are_warnings(stopped, tmp_path):
    broker = copied(stopped, tmp_path)
    for path, name in ((broker.state.folder, "state"), (broker.state / "keys", "state"), (broker.state / "mayfly.sqlite", "state"),
                       (broker.state / "keys/apns.p8", "apns")):
        mode = path.stat().st_mode & 0o777
        path.chmod(mode | 0o055)
        found = check(broker, "--offline")
        assert found[name][0] == "warning" and "et its mode" in found[name][1], (path, found)
        path.chmod(mode)


def pushing(folder, days):
    """PEM with a client certificate for Apple, its key and an intermediate that expires in a day less."""
    root = Authority(folder, "apple")
    (folder / "ca.ext").write_text("basicConstraints=CA:TRUE\n")
    for name, issuer, length, extensions in (("middle", root.path, days - 1, ["-extfile", folder / "ca.ext"]), ("push", folder / "middle.pem", days, [])):
        openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", folder / f"{name}.key", "-out", folder / f"{name}.csr",
                "-subj", f"/UID={BUNDLE_ID}/CN={name}")
        openssl("x509", "-req", "-in", folder / f"{name}.csr", "-CA", issuer, "-CAkey", issuer.with_suffix(".key"), "-CAcreateserial", "-days", length,
                "-out", folder / f"{name}.pem", *extensions)
    both = folder / "both.pem"
    both.write_bytes(b"".join((folder / name).read_bytes() for name in ("push.pem", "middle.pem", "push.key")))
    both.chmod(0o600)
    return both


@pytest.mark.parametrize("left", [40, 29, 6, -1])
def test_certificates_that_expire(stopped, tmp_path, left):
    """30 and 7 days before the end of each, and after it. Of a chain the first end counts, of authorities the last one."""
    root, apple = Authority(tmp_path, "root"), tmp_path / "apple"
    (ours, key), (others, _) = (root.issue(name, days=left) for name in ("ours", "others"))
    key.chmod(0o600)
    apple.mkdir()
    flags = {"tls_certificate": ours, "tls_key": key, "tls_client_ca": others, "apns_ca": others}
    if left > 0:
        # A start refuses an expired one.
        flags |= {"apns_certificate": pushing(apple, days=left + 1), "apns_key_path": None, "apns_key_id": None, "apns_team_id": None}
    found = check_all(stopped.broker, "--offline", status=1 if left < 0 else 0, **flags)
    lines = [(result, text) for name, result, text in found if name == "certificates"]
    names = ["--tls-certificate", "--tls-client-ca", "--apns-ca"] + (["the APNs certificate of " + BUNDLE_ID] if left > 0 else [])
    if left == 40:
        [(result, text)] = lines
        assert result == "good" and re.search("the first of 4 expires in (39|40) days", text), lines
    elif left > 0:
        assert len(lines) == 4 and {result for result, _ in lines} == {"warning"}, lines
        for name in names:
            [text] = [text for _, text in lines if name in text]
            assert re.search(f"expires in ({left - 1}|{left}) days, on 20", text), lines
    else:
        [(result, text)] = lines
        assert result == "bad" and all(name in text for name in names) and text.count("expired on 20") == 3, lines
    assert "mayfly.test" not in str(lines) and str(tmp_path) not in str(lines)


def test_the_databases_certificates_expire(tmp_path):
    """libpq's settings in the URI, in the environment, and its usual place."""
    state = State(postgres=True)
    try:
        certificate, key = Authority(tmp_path, "db").issue("node", days=20)
        usual = tmp_path / "home/.postgresql"
        usual.mkdir(parents=True)
        usual.joinpath("root.crt").write_bytes(Authority(tmp_path, "root", days=5).path.read_bytes())
        uri, files = state.schema.uri, f"&sslcert={certificate}&sslkey={key}"
        broker = Broker(state)
        for changed, environment, told in (
                ({"database": uri + files}, {}, [r"\(sslcert\) expires in (19|20) days"]),
                ({}, {"PGSSLCERT": certificate, "PGSSLKEY": key}, [r"\(sslcert\) expires in (19|20) days"]),
                ({}, {"HOME": tmp_path / "home"}, [r"\(sslrootcert\) expires in [45] days"]),
                ({"database": uri + files}, {"HOME": tmp_path / "home"}, [r"\(sslcert\) expires in", r"\(sslrootcert\) expires in"]),
                ({}, {}, [])):
            found = check_all(broker, "--offline", environment={"HOME": tmp_path} | environment, **changed)
            lines = [text for name, result, text in found if name == "certificates" and result == "warning"]
            assert len(lines) == len(told) and all(any(re.search(part, line) for line in lines) for part in told), found
    finally:
        state.remove()


def test_a_lone_node_without_a_wrapped_key_file_is_a_warning():
    with Deployment() as deployment:
        deployment.simulator.start()
        one, two = deployment["a"], deployment["b"]
        assert "this node is alone" in check(one, "--offline")["keys"][1]
        one.start()
        assert check(one, "--offline")["keys"][0] == "warning"
        # For a second one this is no danger, and it copies the log.
        eventually(lambda: (one.folder / "ledger/tile/entries").exists(), what="a published window")
        time.sleep(2)
        found = check(two, "--offline")
        assert found["keys"] == ("good", "in the nodes' memory only") and found["log"][0] == "good", found
        two.start()
        assert check(one, "--offline")["keys"][0] == "good"
        wrapping = deployment.state.parent / "wrapping.key"
        wrapping.touch(0o600)
        wrapping.write_bytes(os.urandom(32))
        two.stop()
        assert check(one, "--offline")["keys"][0] == "warning"
        assert check(one, "--offline", wrapping_key=wrapping)["keys"][0] == "good"


def test_limits_of_the_process(stopped):
    found = check(stopped.broker, "--offline", prefix=("prlimit", "--nofile=1024:1024"))
    assert found["descriptors"][0] == "warning" and "LimitNOFILE" in found["descriptors"][1]


def test_where_only_processes_are_seen_in_proc(stopped):
    """As in the packaged unit (ProcSubset=pid)."""
    if os.geteuid() != 0:
        pytest.skip("NOT TESTED: a /proc of one's own needs root")
    hidden = ("unshare", "--mount", "sh", "-c", 'mount -t proc -o subset=pid proc /proc && ! [ -e /proc/swaps ] && exec "$@"', "sh")
    found = check(stopped.broker, "--offline", prefix=hidden)
    assert not bad(found) and found["swap"][0] in ("good", "warning"), found
    if len(Path("/proc/swaps").read_text().splitlines()) == 1:
        # Swap that is off is no reason to warn, whatever the version of the cgroups.
        assert found["swap"][0] == "good", found


def test_locked_memory_of_another_user(stopped, tmp_path):
    if os.geteuid() != 0:
        pytest.skip("NOT TESTED: another user's limit needs root")
    broker = copied(stopped, tmp_path)
    for path in [tmp_path, *broker.state.folder.rglob("*"), broker.state.folder]:
        os.chown(path, 65534, 65534)
    parent = tmp_path
    while parent != parent.parent:
        if parent.stat().st_mode & 0o005 != 0o005 and parent.stat().st_uid == 0:
            parent.chmod(parent.stat().st_mode | 0o005)
        parent = parent.parent
    user = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all")
    broker.options["policy"] = tmp_path / "rooms.json"
    broker.options["policy"].write_text(json.dumps(quick_rooms()))
    broker.options["policy"].chmod(0o644)
    broker.cwd = "/"
    few = check(broker, "--offline", prefix=("prlimit", f"--memlock={2 << 20}:{2 << 20}", *user))
    assert few["memory"][0] == "warning" and "LimitMEMLOCK" in few["memory"][1]
    none = check(broker, "--offline", status=1, prefix=("prlimit", "--memlock=4096:4096", *user))
    assert {"memory"} <= bad(none)
    # The keys of another user.
    found = check(broker, "--offline", status=1)
    assert "keys" in bad(found) and "Run this as that user" in found["keys"][1]


def test_little_space_is_a_warning(small_disk):
    """The small disk is in memory, too."""
    state = State(parent=small_disk)
    done = mayfly("check", "--offline", "--state", state.folder)
    assert done.returncode == 2, "there is no bundle id"
    for words in ("only 2 MiB free in", "is in memory: a restart of the machine ends the log"):
        assert [line for line in done.stdout.splitlines() if line.startswith("warning  disk ") and words in line], done.stdout


# Promise: other-formats-refused
def test_a_database_of_another_format_is_refused(stopped, tmp_path):
    """Its seals can't be opened. Start, `check`, `drill` and `migrate` say what to do, and change nothing."""
    broker = copied(stopped, tmp_path)
    broker.start()
    assert broker.stop() == 0
    path = broker.state / "mayfly.sqlite"
    with sqlite3.connect(path) as database:
        version, = database.execute("PRAGMA user_version").fetchone()
        database.execute(f"PRAGMA user_version = {version - 1}")
    database.close()
    before = path.read_bytes()
    told = f"its tables have version {version - 1}, and this release reads only version {version}"
    found = check(broker, "--offline", status=1)
    assert found["database"][0] == "bad" and told in found["database"][1] and "empty state folder" in found["database"][1], found
    start_fails(broker, f"mayfly.sqlite: {told}")
    drill = mayfly("drill", "--state", broker.state.folder)
    assert drill.returncode == 1 and told in drill.stderr, drill
    assert path.read_bytes() == before
