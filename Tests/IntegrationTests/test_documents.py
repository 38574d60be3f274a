"""Documents that must not drift from the program."""

import json
import os
import re
import subprocess
import sys
import time

import pytest
from openapi_spec_validator import validate

import contract
from call_world import CallWorld
from companion_world import CompanionWorld
from mayfly import Client
from monitor_world import MonitorWorld
from processes import BINARY, REPOSITORY, clean_environment, eventually, mayfly
from test_readme import Shell, matches, place, transcript  # noqa: F401
from world import World


def test_openapi_is_valid():
    validate(contract.document())


# Promise: openapi-describes-every-route
def test_openapi_routes_exist(world):
    """Each route and method of the document is the broker's: none answers 404 not_found or 405."""
    public, operator = Client(world.broker.port), Client(world.broker.operator_port)
    for path, item in contract.document()["paths"].items():
        for method in item:
            if method not in ("get", "put", "post", "delete", "patch"):
                continue
            if "{" in path and path.startswith("/audit/"):
                continue  # ledger files, read in test_rooms.py
            caller = operator if "servers" in item else public
            answer = caller.send(method.upper(), re.sub(r"\{\w+\}", "x", path), checked=False)
            # This broker has no users, so routes for users report `audiences_off`.
            assert answer.status not in (404, 405) or answer.code == "audiences_off", f"{method} {path}: {answer}"


def test_openapi_error_codes_are_explained():
    text = contract.DOCUMENT.read_text()
    for code in contract.document()["components"]["schemas"]["Problem"]["properties"]["code"]["enum"]:
        assert text.count(code) >= 2, f"{code} is listed but explained nowhere"


def test_openapi_has_no_cut_descriptions():
    """In YAML, a comma ends an unquoted value within braces. What follows it becomes a key without a value."""
    def keys(node):
        if isinstance(node, dict):
            yield from (key for key, value in node.items() if value is None)
        for part in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
            yield from keys(part)
    assert not list(keys(contract.document()))


def test_openapi_examples_are_valid():
    """They are what docs/api.md shows."""
    examples = 0
    for path, item in contract.document()["paths"].items():
        for method, call in item.items():
            if "requestBody" in call:
                [content] = call["requestBody"]["content"].values()
                if "example" in content:
                    examples += 1
                    assert not contract.faults(content["schema"], content["example"]), f"{method} {path}"
    assert examples > 8


def test_documents_name_calls_that_exist():
    calls = {f"{method.upper()} {path}" for path, item in contract.document()["paths"].items() for method in item if method != "servers"}
    named = {(document.name, call) for document in (REPOSITORY / "docs").glob("*.md") if document.name != "simulator.md"
             for call in re.findall(r"`((?:GET|POST|PUT|PATCH|DELETE) /[^`\s]*)`", document.read_text())}
    assert len(named) > 40
    assert not {(name, call) for name, call in named if call not in calls}


def test_the_api_page_is_up_to_date():
    done = subprocess.run([sys.executable, REPOSITORY / "scripts/api-page", "--check"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def page(name):
    return (REPOSITORY / f"docs/{name}.md").read_text()


OPERATORS_PAGES = ["production", "reference", "troubleshooting"]


def test_the_settings_in_the_reference_are_up_to_date():
    words = [sys.executable, REPOSITORY / "packaging/generate", BINARY, "--reference", "--check"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_setting_is_in_the_reference():
    """No operator's page names an unknown setting."""
    helped = [mayfly(command, "--help") for command in ("serve", "apns-simulator")]
    assert all(done.returncode == 0 for done in helped)
    told = "".join(done.stdout for done in helped)
    reference = page("reference")
    flags = set(re.findall(r"--[a-z][a-z0-9-]+", told)) - {"--help"}
    names = set(re.findall(r"\b(?:MAYFLY|APNS|COMETCHAT)_[A-Z0-9_]+\b", told))
    assert {"--state", "--listen"} <= flags and {"MAYFLY_STATE", "APNS_KEY_ID"} <= names
    missing = sorted(name for name in flags | names if not re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", reference))
    assert not missing, f"docs/reference.md does not name {missing}"
    for name in OPERATORS_PAGES:
        unknown = set(re.findall(r"\b(?:MAYFLY|APNS|COMETCHAT)_[A-Z0-9_]*[A-Z0-9]\b", page(name))) - names
        assert not unknown, f"docs/{name}.md names {unknown}, which no command's --help does"


def test_every_metric_is_in_the_reference(world):
    """No operator's page names an unknown metric."""
    served = Client(world.broker.operator_port).send("GET", "/metrics").body.decode()
    names = set(re.findall(r"^(mayfly_\w+)[ {]", served, re.M))
    assert len(names) > 10 and set(re.findall(r"`(mayfly_\w+)[`{]", page("reference"))) == names
    for name in OPERATORS_PAGES:
        assert set(re.findall(r"\bmayfly_\w+", page(name))) <= names, f"docs/{name}.md"


def test_every_error_code_is_in_the_reference():
    codes = set(contract.document()["components"]["schemas"]["Problem"]["properties"]["code"]["enum"])
    errors = page("reference").split("\n## Errors\n")[1]
    rows = re.findall(r"^\| \d{3}[^|]*\| ([^|]*)\|", errors, re.M)
    assert {code for row in rows for code in re.findall(r"`(\w+)`", row)} == codes


def test_every_reason_is_listed_under_its_fault():
    """docs/why-no-push.md names the faults of all reasons as `mayfly apns explain` does."""
    done = mayfly("apns", "explain", "--json")
    assert done.returncode == 0
    headings = {"app": "The app, or its phone", "settings": "This broker's settings", "apple": "Apple, or the network",
                "mayfly": "Mayfly; please report it", "nobody": "Nobody"}
    explained = {heading: set() for heading in headings.values()}
    for reason in json.loads(done.stdout):
        explained[headings[reason["fault"]]].add(reason["reason"])
    bullets = re.findall(r"^- \*\*([^*]+)\*\*: ((?:.+\n)+?)(?=- |\n)", page("why-no-push"), re.M)
    assert {heading: set(re.findall(r"`(\w+)`", names)) for heading, names in bullets} == explained


def test_every_promise_has_its_test():
    """scripts/promises: the pages name the test of each promise and requirement, and no test has lost its mark. What is missing is printed."""
    done = subprocess.run([REPOSITORY / "scripts/promises", "--check"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def test_causes_in_the_app_and_on_the_phone_are_explained():
    """docs/why-no-push.md has a row for each, with a remedy."""
    rows = dict(re.findall(r"^\| ([^|]+?) \| ([^|]+?) \|$", page("why-no-push"), re.M))
    causes = {
        "no capability Push Notifications": "Xcode", "not registered": "at each launch", "no permission": "when the user sees why, before or after registering; provisional",
        "the user took it back": "at each launch", "Focus, Do Not Disturb": "entitlement", "low power mode": "`alert`", "the app is in front": "willPresent",
        "unknown `category`": "register the category", "`repeated: true`": "eventId", "monitor: `pushes: 0` without": "not pushed"}
    for cause, remedy in causes.items():
        found = [told for row, told in rows.items() if cause in row]
        assert len(found) == 1 and remedy in found[0], cause


def test_capabilities_of_each_app_are_named():
    """In the guides of companions and calls, as Xcode names them."""
    for guide, names in {
            "companion": ("Push Notifications", "Background Modes", "Remote notifications", "Time Sensitive Notifications", "NSSupportsLiveActivities"),
            "calls": ("Push Notifications", "Background Modes", "Voice over IP")}.items():
        assert not [name for name in names if name not in page(guide)], guide


def anchors(document):
    """The anchors that GitHub makes of a document's headings."""
    text = re.sub(r"^```.*?^```", "", document.read_text(), flags=re.M | re.S)
    made = []
    for heading in re.findall(r"^#+ (.+)", text, re.M):
        anchor = re.sub(r"[^\w -]", "", re.sub(r"\]\([^)]*\)", "]", heading).lower()).replace(" ", "-")
        repeats = sum(re.fullmatch(rf"{re.escape(anchor)}(-\d+)?", one) is not None for one in made)
        made.append(f"{anchor}-{repeats}" if repeats else anchor)
    return made


def test_links_lead_somewhere():
    """Every relative link of every document names a file that is there, and one of its headings."""
    folders = (".", "docs", "docs/decisions", "audit", "clients/javascript", "clients/swift")
    documents = [path for folder in folders for path in (REPOSITORY / folder).glob("*.md")]
    assert len(documents) > 20
    for document in documents:
        for target, anchor in re.findall(r"\]\(([^)#\s]*)#?([^)\s]*)\)", document.read_text()):
            if "://" in target:
                continue
            file = document.parent / target if target else document
            assert file.exists(), f"{document.relative_to(REPOSITORY)} links to {target}"
            assert not anchor or file.suffix != ".md" or anchor in anchors(file), f"{document.relative_to(REPOSITORY)} links to {target}#{anchor}"


def test_a_privacy_officer_finds_the_page():
    """README and the first lines of the auditor's handbook link to it. It is in plain words, and its times are those of the built-in policies."""
    text = page("privacy")
    for document, link in (("README.md", "docs/privacy.md"), ("audit/README.md", "../docs/privacy.md")):
        lines = (REPOSITORY / document).read_text().splitlines()
        assert any(f"]({link})" in line for line in lines), document
    top = " ".join((REPOSITORY / "audit/README.md").read_text().splitlines()[:6])
    assert "../docs/privacy.md" in top and "Merkle" not in top
    headings = " ".join(re.findall(r"^#+ (.*)", text, re.M)).lower()
    assert all(word in headings for word in ("keep", "how long", "warrant", "gdpr"))
    plain = text.split("\n## SOC 2")[0]
    assert not re.findall(r"Merkle|[Rr]atchet|\bepochs?\b|\bhash(es)? of\b|XChaCha|Ed25519|WAL\b|capabilit|adversar", plain)
    limits = {name: json.loads((REPOSITORY / f"policies/{name}.json").read_text())["limits"] for name in ("rooms", "companion", "monitor", "calls")}
    assert limits["rooms"]["roomLifeSeconds"]["max"] == 7 * 86_400 and limits["rooms"]["joinCode"]["lifeSeconds"]["max"] == 86_400
    assert {limit["jobDeadlineSeconds"] for limit in limits.values()} == {30, 120} and limits["rooms"]["joinCode"]["keptAfterAcceptSeconds"] == 600
    assert {limits[name]["deviceLifeSeconds"] for name in ("companion", "monitor", "calls")} == {30 * 86_400}
    lives = [limits[name][key] for name in ("companion", "monitor", "calls") for key in ("activityLifeSeconds", "sessionLifeSeconds") if key in limits[name]]
    assert (min(lives), max(lives)) == (12 * 3600, 7 * 86_400)
    for words in ("after 7 days at most", "after 2 minutes at most", "after a day at most", "after 30 days", "after 12 hours to 7 days", "10 minutes"):
        assert words in text, words


def python_of(guide):
    """The programs in a guide."""
    return re.findall(r"^```python\n(.*?)^```", (REPOSITORY / f"docs/{guide}.md").read_text(), re.M | re.S)


def play(guide, world):
    """Runs each command of a guide in order in one shell, and compares its output. Returns the outputs."""
    steps = transcript((REPOSITORY / f"docs/{guide}.md").read_text())
    assert len(steps) > 6
    places = {
        "http://127.0.0.1:8787/": f"http://127.0.0.1:{world.broker.port}/",
        "http://127.0.0.1:8790/": f"http://127.0.0.1:{world.simulator.control_port}/",
        ".build/release/mayfly ": f"{BINARY} ", "=var/": f"={world.state.folder}/", " var/": f" {world.state.prints}/"}
    shell, printed = Shell(clean_environment(), world.broker.operator_port), []
    try:
        for command, expected in steps:
            for place, moved in places.items():
                command = command.replace(place, moved)
            actual = shell.run(command, expected)
            assert "[exit status" not in actual and matches(expected, actual), f"$ {command}\n--- expected\n{expected}\n--- got\n{actual}"
            printed.append(actual)
    finally:
        shell.close()
    return "".join(printed)


def test_the_rooms_guides_commands_work():
    """Its handle is the one in the push."""
    program = {}
    exec(next(block for block in python_of("rooms") if "def handle" in block), program)
    with World() as world:
        room = re.search(r'"roomid":"([^"]*)"', play("rooms", world))[1]
        push, = world.simulator.pushes("a1a1a1a1a1a1a1a1")
        assert push["payload"]["roomId"] == program["handle"](room, 1)


def test_the_companions_guides_commands_work():
    """Its handle is the one in the push."""
    program = {}
    exec(python_of("companion")[0], program)
    with CompanionWorld() as world:
        handle_keys = re.findall(r'"handleKey":"([^"]*)"', play("companion", world))
        assert len(handle_keys) == 3
        told = {push["payload"].get("sessionId") for push in world.simulator.pushes("a1a1a1a1a1a1a1a1")}
        assert told == {program["handle"](handle_keys[0], "session-1")}


def test_the_monitors_guides_commands_work():
    """Its handle is the one in the push."""
    program = {}
    exec(python_of("monitor")[0], program)
    with MonitorWorld() as world:
        [key] = re.findall(r'"handleKey":"([^"]*)"', play("monitor", world))
        told = {push["payload"]["printerState"]["prefix"] for push in world.simulator.pushes("d4d4d4d4d4d4d4d4")}
        assert told == {program["handle"](key, "p1s_01")}


def test_the_calls_guides_commands_work():
    """Its handles are those in the push."""
    program = {}
    exec(python_of("calls")[0], program)
    with CallWorld() as world:
        # A reader may try the guide again, with the same broker.
        for _ in range(2):
            before = time.time()
            [key] = re.findall(r'"handleKey":"([^"]*)"', play("calls", world))
            push = world.simulator.pushes("a1a1a1a1a1a1a1a1")[-1]
            assert push["payload"]["callerUid"] == program["handle"](key, "uid", "alice")
            made = range(int(before), int(time.time()) + 1)
            assert push["payload"]["sessionId"] in {program["handle"](key, "session", f"session-{second}") for second in made}
            time.sleep(max(0, 1.1 - (time.time() - before)))
        assert len(world.simulator.pushes("a1a1a1a1a1a1a1a1")) == 2


def test_the_tools_commands_work(place):  # noqa: F811
    """Those of simulator.md and why-no-push.md, beside a demo that stays."""
    shell, moved = place
    shell.run(f"{BINARY} demo --stay &", "...")
    tools = re.findall(r"^```sh\n(.*?)^```", page("simulator"), re.M | re.S)[1]
    [trouble] = re.findall(r"^```sh\n(.*?)^```", page("why-no-push"), re.M | re.S)
    script = moved(tools.replace("=var ", "=var/ ").replace("$PWD/.build/release", str(BINARY.parent)) + trouble)
    done = subprocess.run(["bash", "-ec", script], input="a1" * 32 + "\n", capture_output=True, text=True, timeout=60, env=shell.environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "HTTP/2 200" in done.stdout and '"hello"' in done.stdout and "BadDeviceToken" in done.stdout


def test_the_calls_guide_is_complete():
    """Its calls, pushes and limits are those of the OpenAPI document and of the policy."""
    guide, document = (REPOSITORY / "docs/calls.md").read_text(), contract.document()
    policy = json.loads((REPOSITORY / "policies/calls.json").read_text())
    words = [f"{method.upper()} {path}" for path, item in document["paths"].items() for method, call in item.items()
             if method != "servers" and "calls" in call["tags"]]
    words += [word for name in ("CallReceipt", "RegisterPhone", "CallWebhook") for word in document["components"]["schemas"][name]["properties"]]
    words += [*policy["templates"]["incoming_call"]["fields"], *policy["templates"]["incoming_call"]["fields"]["callType"]["values"]]
    limits = policy["limits"]
    words += [f"{limits['registrationsPerOwner']} phones a user", f"{limits['eventsPerUser']['count']} registrations a minute",
              f"{limits['tokenPushes']['count']} pushes", f"at most {policy['templates']['incoming_call']['ttlSeconds']} seconds"]
    assert len(words) > 20
    missing = [word for word in words if word not in guide]
    assert not missing, f"docs/calls.md does not name {missing}"


def test_null_is_documented_for_optional_fields():
    """The broker reads null as an absent field."""
    def resolved(schema):
        return contract._resolve(schema) if "$ref" in schema else schema

    def objects(schema, path):
        schema = resolved(schema)
        yield from (one for part in schema.get("allOf", ()) for one in objects(part, path))
        for name, field in schema.get("properties", {}).items():
            yield f"{path}.{name}", field, name in schema.get("required", ())
            yield from objects(field, f"{path}.{name}")
    document, refused = contract.document(), []
    for path, item in document["paths"].items():
        for method, call in item.items():
            if "requestBody" in call:
                [content] = call["requestBody"]["content"].values()
                for name, field, is_required in objects(content["schema"], f"{method.upper()} {path} "):
                    if not is_required and contract.faults(field, None):
                        refused.append(name)
    assert not refused, f"docs/openapi.yaml refuses a null in {refused}"


def test_the_companions_guide_is_complete():
    """Its calls, events, pushes and limits are those of the OpenAPI document and of the policy."""
    guide, document = (REPOSITORY / "docs/companion.md").read_text(), contract.document()
    policy = json.loads((REPOSITORY / "policies/companion.json").read_text())
    routes = [f"{method.upper()} {path}" for path, item in document["paths"].items() for method, call in item.items()
              if method != "servers" and "companion" in call["tags"] and not path.startswith("/ws")]
    words = routes + document["components"]["schemas"]["SessionEvent"]["properties"]["type"]["enum"]
    for template in policy["templates"].values():
        words += [template[key] for key in ("title", "category") if key in template]
        words += [template["constants"]["type"]] if "type" in template["constants"] else []
        words += [value for field in template["fields"].values() for value in field.get("values", ())]
    words += list(document["components"]["schemas"]["EventReceipt"]["properties"])
    limits = policy["limits"]
    words += [f"{limits['registrationsPerOwner']} devices and {limits['activitiesPerOwner']} Live Activities", f"{limits['approvalSeconds']} seconds",
              f"{limits['activityUpdateSeconds']} seconds", f"{limits['eventsPerUser']['count']} events a minute", f"{limits['tokenPushes']['count']} pushes"]
    assert len(words) > 40
    missing = [word for word in words if word not in guide]
    assert not missing, f"docs/companion.md does not name {missing}"


def test_the_monitors_guide_is_complete():
    """Its calls, words, pushes and limits are those of the OpenAPI document and of the policy."""
    guide, document = (REPOSITORY / "docs/monitor.md").read_text(), contract.document()
    policy, schemas = json.loads((REPOSITORY / "policies/monitor.json").read_text()), document["components"]["schemas"]
    words = [f"{method.upper()} {path}" for path, item in document["paths"].items() for method, call in item.items()
             if method != "servers" and "monitor" in call["tags"]]
    for schema in ("MonitorSettings", "MonitorRegistration", "PrinterReceipt", "Monitors", "PrinterStatus", "PrinterProgress"):
        words += list(schemas[schema]["properties"])
    words += schemas["Monitors"]["properties"]["devices"]["items"]["required"] + [f"`{word}`" for word in schemas["PrinterState"]["anyOf"][0]["enum"]]
    words += schemas["MonitorRegistration"]["properties"]["message"]["enum"] + schemas["MonitorMessage"]["properties"]["message"]["enum"]
    for template in policy["templates"].values():
        words += [template["title"].replace("{progress}", "50"), template["constants"]["printerState"]["type"], template["constants"]["printerState"]["status"]]
    limits = policy["limits"]
    words += [f"{limits['registrationsPerOwner']} devices", f"{limits['eventsPerUser']['count']} events a minute", f"{limits['tokenPushes']['count']} pushes"]
    assert len(words) > 60
    missing = [word for word in words if word not in guide]
    assert not missing, f"docs/monitor.md does not name {missing}"


def test_how_long_a_target_takes_is_said_once():
    """Two pages would soon differ."""
    files = [REPOSITORY / name for name in ("Makefile", "README.md", "CONTRIBUTING.md")] + [*(REPOSITORY / "docs").glob("*.md")]
    files += [path for folder in ("Benchmarks", "scripts", "packaging") for path in (REPOSITORY / folder).iterdir() if path.is_file()]
    said = {}
    for file in files:
        lines = file.read_text(errors="replace").splitlines()
        for number, line in enumerate(lines):
            # The comment above a target of the Makefile is about that target.
            below = lines[number + 1] if file.name == "Makefile" and number + 1 < len(lines) else ""
            named = set(re.findall(r"`make (test|check|bench|check-package)`", line)) | set(re.findall(r"^(test|check|bench|check-package):", below))
            if re.search(r"(\b\d+|\{minutes\S*\}|\b[a-z]+) (minutes|hours?)\b|\ban hour\b", line):
                for target in named:
                    said.setdefault(target, []).append(file.name)
    # The program that writes the page has its words, too.
    assert said == {"test": ["CONTRIBUTING.md"], "check": ["CONTRIBUTING.md"], "check-package": ["CONTRIBUTING.md"], "bench": ["benchmarks.md", "page.py"]}


def test_translated_texts_work_as_the_reference_says(tmp_path):
    """Its template is accepted, and its keys reach the phone instead of texts."""
    [template] = re.findall(r'^("peer_waiting": \{.*?^\})', page("reference"), re.M | re.S)
    policy = json.loads((REPOSITORY / "policies/rooms.json").read_text()) | {"name": "translated"}
    policy["templates"] = json.loads(f"{{{template}}}")
    (tmp_path / "mine.json").write_text(json.dumps(policy))
    assert mayfly("policy", "lint", tmp_path / "mine.json").returncode == 0
    with World(policy=tmp_path / "mine.json") as world:
        client = Client(world.broker.port)
        room = client.room()
        client.presence(room.roomid, room.joiner.client).expect(202)
        push, = eventually(lambda: world.simulator.pushes(room.creator.token), what="the push")
        client.close()
    assert push["payload"]["aps"]["alert"] == {"title-loc-key": "CHAT_TITLE", "loc-key": "PEER_WAITING"}


def as_another_user(folder):
    """Programs in place of those that need a Debian with systemd: sudo, whose `-u mayfly` is nobody here, systemctl and install."""
    folder.mkdir()
    nobody = "setpriv --reuid=65534 --regid=65534 --clear-groups"
    for name, text in {
            "sudo": f'if [ "$1" = -u ]; then shift 2; exec {nobody} "$@"; fi\nexec "$@"', "systemctl": "exit 0", "mayfly": f'exec {BINARY} "$@"',
            "install": 'set -- $(printf "%s\\n" "$@" | sed "s/^mayfly$/65534/"); exec /usr/bin/install "$@"'}.items():
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)
    folder.chmod(0o755)
    return clean_environment(PATH=f"{folder}:/usr/sbin:/usr/bin:/sbin:/bin")


@pytest.mark.skipif(os.geteuid() != 0, reason="NOT TESTED: another user needs root")
@pytest.mark.parametrize("is_lost", [False, True], ids=["start over", "lost disk"])
def test_starting_over_works_as_printed(open_folder, is_lost):
    section = page("troubleshooting").split("### Start over\n")[1].split("\n### ")[0]
    [commands] = re.findall(r"^```sh\n(.*?)^```", section, re.M | re.S)
    assert "skip the `mv` command" in section and "Serve the new log at the new address" in section and len(re.findall(r"\]\(troubleshooting.md#start-over\)", page("production"))) == 2
    library = open_folder / "lib"
    library.mkdir(mode=0o755)
    environment, state = as_another_user(open_folder / "bin"), library / "mayfly"
    if is_lost:
        commands = "".join(line for line in commands.splitlines(True) if " mv " not in line)
    else:
        state.mkdir()
        os.chown(state, 65534, 65534)
        subprocess.run(["sudo", "-u", "mayfly", "mayfly", "keys", "init", "--state", state, "--origin", "push.example.org/audit"], check=True, env=environment,
                       timeout=30, stdout=subprocess.DEVNULL)
    done = subprocess.run(["bash", "-ec", commands.replace("/var/lib/", f"{library}/")], capture_output=True, text=True, timeout=60, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (state / "ledger.vkey").read_text().startswith("push.example.org/audit-2+") and (state / "keys/ratchet.key").stat().st_uid == 65534
    assert state.stat().st_mode & 0o777 == 0o700 and (library / "mayfly.old/ledger.vkey").exists() is not is_lost
