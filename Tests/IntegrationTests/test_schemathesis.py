"""Ten thousand cases that schemathesis makes from docs/openapi.yaml, against a real broker.

Schemathesis/ has its settings, its hooks, and `accepted.json`: the failures that are right as they are, each with its reason.
"""

import json
import subprocess
from collections import Counter
from pathlib import Path

import pytest

import contract
from companion_world import users
from processes import BUNDLE_ID, REPOSITORY, clean_environment
from world import World

FOLDER = Path(__file__).parent / "Schemathesis"
ACCEPTED = FOLDER / "accepted.json"
PROGRAM = REPOSITORY / ".build/schemathesis/bin/schemathesis"
MANY = {"count": 1_000_000, "seconds": 600}
KINDS = {
    "rooms": {"creations": {"perAddress": MANY, "overall": MANY}, "wrongCodes": {"perAddress": MANY, "overall": MANY}, "tokenKnocks": MANY},
    "companion": {"eventsPerUser": MANY, "tokenPushes": MANY, "registrationsPerOwner": 1000, "activitiesPerOwner": 1000},
    "monitor": {"eventsPerUser": MANY, "tokenPushes": MANY, "registrationsPerOwner": 1000},
    "calls": {"eventsPerUser": MANY, "tokenPushes": MANY, "registrationsPerOwner": 1000}}


def policy(state, kind):
    """A file with the built-in policy and larger shares, since 429 says little about a call."""
    content = json.loads((REPOSITORY / f"policies/{kind}.json").read_text())
    content["limits"] |= KINDS[kind]
    if kind == "rooms":
        content["limits"]["joinCode"]["pendingShort"] = 1_000_000
    path = state.prints / f"{kind}.json"
    path.write_text(json.dumps(content))
    return str(path)


@pytest.fixture
def world():
    with World(start=False, web_push=True) as world:
        world.broker.options |= {
            "policy": ",".join(policy(world.state, kind) for kind in KINDS), "jwt-algorithm": "HS256", "jwt-key": world.state / "keys/jwt.secret",
            "webhook-secrets": world.state / "keys/webhook.secret", "backends": "127.0.0.1", "backend-creations": 1_000_000}
        world.broker.start()
        yield world


def start(world, folder, caller, user, url, *filters):
    """Runs schemathesis with the JWT of a caller, in a folder of its own for what it keeps. `user`: the JWT of who answers approvals."""
    folder.mkdir()
    environment = clean_environment(
        CAMPAIGN_URL=world.broker.url, CAMPAIGN_CALLER_JWT=caller, CAMPAIGN_USER_JWT=user,
        CAMPAIGN_WEBHOOK_SECRET=(world.state / "keys/webhook.secret").read_text().strip(), CAMPAIGN_COUNTS=folder / "counts.json",
        CAMPAIGN_BUNDLE_ID=BUNDLE_ID, PYTHONPATH=FOLDER, PYTHONDONTWRITEBYTECODE=1)
    command = [PROGRAM, "--config-file", FOLDER / "schemathesis.toml", "--no-color", "run", contract.DOCUMENT, "--url", url, "--baseline", ACCEPTED, *filters]
    with open(folder / "output", "wb") as output:
        return subprocess.Popen(command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)


@pytest.mark.campaign
def test_the_broker_answers_as_documented(world, tmp_path):
    """No 5xx but a documented 503, no answer that the document lacks, and no other failure than the accepted ones."""
    if not PROGRAM.exists():
        pytest.skip("NOT TESTED: there is no .build/schemathesis; `make check` makes it")
    user, back_end = users(world.state).token("user"), users(world.state).back_end()
    started = {
        "user": start(world, tmp_path / "user", user, user, world.broker.url, "--exclude-tag", "operator"),
        "back-end": start(world, tmp_path / "back-end", back_end, user, world.broker.url, "--exclude-tag", "operator"),
        "operator": start(world, tmp_path / "operator", user, user, world.broker.operator_url, "--include-tag", "operator")}
    try:
        ended = {name: process.wait(600) for name, process in started.items()}
    finally:
        for process in started.values():
            process.kill()
    told = "\n".join((tmp_path / name / "output").read_text() for name, status in ended.items() if status)
    assert not told, told
    assert world.broker.running
    answers = Counter()
    for name in started:
        for operation, status, count in json.loads((tmp_path / name / "counts.json").read_text()):
            answers[operation, status] += count
    assert answers.total() >= 10_000
    # No policy gives an address more than three test pushes an hour.
    refused = sum(count for (operation, status), count in answers.items() if status in (429, 503) and operation != "POST /api/push/test")
    assert refused < answers.total() / 100, answers
    operations = {f"{method.upper()} {path}" for path, item in contract.document()["paths"].items() for method in item if method != "servers"}
    succeeded = {operation for operation, status in answers if status < 400}
    # Plain requests open no WebSockets, and nobody knows a tile's or a policy's name.
    assert operations - succeeded <= {"GET /ws", "GET /ws/sessions", "GET /audit/tile/{path}", "GET /audit/page/{file}", "GET /audit/policies/{sha256}.json"}


def test_accepted_failures_have_reasons():
    entries = json.loads(ACCEPTED.read_text())["entries"]
    assert len(entries) <= 10 and all(len(entry["reason"]) > 20 for entry in entries)
