"""Documents that must not drift from the program."""

import re

from openapi_spec_validator import validate

import contract
from mayfly import Client
from processes import REPOSITORY, mayfly


def test_openapi_is_valid():
    validate(contract.document())


def test_openapi_routes_exist(world):
    """Each route and method of the document is the broker's: none answers 404 not_found or 405."""
    public, operator = Client(world.broker.port), Client(world.broker.operator_port)
    for path, item in contract.document()["paths"].items():
        for method in item:
            if method not in ("get", "put", "post", "delete"):
                continue
            if "{" in path:
                continue  # ledger files, read in test_rooms.py
            caller = operator if "servers" in item else public
            answer = caller.send(method.upper(), path, checked=False)
            assert answer.status not in (404, 405), f"{method} {path}: {answer}"


def test_openapi_error_codes_are_explained():
    text = contract.DOCUMENT.read_text()
    for code in contract.document()["components"]["schemas"]["Problem"]["properties"]["code"]["enum"]:
        assert text.count(code) >= 2, f"{code} is listed but explained nowhere"


def test_every_key_of_serve_is_in_the_operators_guide():
    done = mayfly("serve", "--help")
    assert done.returncode == 0
    guide = (REPOSITORY / "docs/operations.md").read_text()
    flags = set(re.findall(r"--[a-z][a-z-]+", done.stdout)) - {"--help"}
    names = set(re.findall(r"\b(?:MAYFLY|APNS|COMETCHAT)_[A-Z0-9_]+\b", done.stdout))
    assert {"--state", "--listen"} <= flags and {"MAYFLY_STATE", "APNS_KEY_ID"} <= names
    missing = sorted(name for name in flags | names if not re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", guide))
    assert not missing, f"docs/operations.md does not name {missing}"
    known = flags | names
    for name in set(re.findall(r"\bMAYFLY_[A-Z0-9_]+\b", guide)):
        everywhere = name in known or name.startswith(("MAYFLY_APNS_SIMULATOR_", "MAYFLY_TEST_", "MAYFLY_BINARY"))
        assert everywhere, f"docs/operations.md names {name}, which `mayfly serve --help` does not"
