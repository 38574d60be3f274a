"""Hooks of the campaign in test_schemathesis.py: credentials, things that exist, signed webhooks, and a count of all answers.

Random ids exist nowhere, so every second valid case gets one of something made for it.
"""

import atexit
import hashlib
import hmac
import json
import os
import secrets
import threading
import urllib.request
import zlib
from collections import Counter
from pathlib import Path
from urllib.parse import unquote, unquote_to_bytes

import requests
import schemathesis

URL, CALLER, USER, WEBHOOK_SECRET, COUNTS = (
    os.environ[f"CAMPAIGN_{name}"] for name in ("URL", "CALLER_JWT", "USER_JWT", "WEBHOOK_SECRET", "COUNTS"))
CREATOR = "creator"
answers = Counter()
lock = threading.Lock()


def post(path, jwt=None, **body):
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {jwt}"} if jwt else {})
    with urllib.request.urlopen(urllib.request.Request(f"{URL}{path}", json.dumps(body).encode(), headers), timeout=10) as answer:
        return json.load(answer)


def new_token():
    return secrets.token_hex(32)


def new_code():
    """The code of a room that waits."""
    code = secrets.token_hex(8)
    post("/api/rooms", joinid=code, client1=CREATOR)
    return code


def new_approval():
    return post("/api/sessions/s/events", USER, type="approval_request", data={})["requestId"]


def new_registration():
    return post("/api/push/register", CALLER, deviceToken=new_token())["tokenId"]


def new_device():
    return post("/api/devices/register", CALLER, apnsToken=new_token())["deviceId"]


@schemathesis.auth().apply_to(schemathesis.openapi.require_security_scheme("user"))
class Jwt:
    def get(self, case, context):
        return CALLER

    def set(self, case, jwt, context):
        case.headers = {**(case.headers or {}), "Authorization": f"Bearer {jwt}"}


@schemathesis.auth(refresh_interval=None).apply_to(schemathesis.openapi.require_security_scheme("room"))
class Room:
    """A new room for each case, since a case may close it."""

    def get(self, case, context):
        return post("/api/rooms", joinid=secrets.token_hex(8), client1=CREATOR, client1_token=new_token())["roomid"]

    def set(self, case, room, context):
        case.headers = {**(case.headers or {}), "Authorization": f"Bearer {room}"}


def subscription(made):
    """A subscription for a made-up one. No schema knows which hosts are public, and which points are on the curve. The keys are those of RFC 8291, 5."""
    return {
        "endpoint": f"https://push.example/{zlib.crc32(json.dumps(made).encode())}",
        "keys": {"p256dh": "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4", "auth": "BTBZMqHH6r4Tts7J_aSIgg"}}


def is_chosen(case):
    """Whether this case gets things that exist. The same case always gives the same answer, as Hypothesis demands."""
    content = json.dumps([case.path_parameters, case.body if isinstance(case.body, dict) else None], default=str)
    return zlib.crc32(content.encode()) % 2 == 0


MADE_FOR_PATHS = {"tokenId": new_registration, "deviceId": new_device, "requestId": new_approval}
MADE_FOR_BODIES = {"joinid": new_code, "client": lambda: CREATOR, "requestId": new_approval}


def names_are_short(value):
    """JSON Schema counts characters, but names are limited to 128 bytes."""
    if isinstance(value, dict):
        return all(names_are_short(one) for one in value.values())
    return not (isinstance(value, str) and len(unquote(value)) <= 128 < len(unquote_to_bytes(value.encode("utf-8", "surrogatepass"))))


@schemathesis.hook
def before_load_schema(context, raw_schema):
    """No document knows which apps an operator serves."""
    raw_schema["components"]["schemas"]["BundleID"] = {"enum": [os.environ["CAMPAIGN_BUNDLE_ID"], None]}


@schemathesis.hook
def filter_case(context, case):
    return names_are_short(case.body) and names_are_short(dict(case.path_parameters or {}))


@schemathesis.hook
def before_call(context, case, kwargs):
    if case.meta is None or case.meta.generation.mode.value != "positive":
        return
    if isinstance(case.body, dict):
        if set(case.body) & {"client1_token", "client2_token", "deviceToken", "activityToken", "apnsToken"}:
            case.body = {name: value for name, value in case.body.items() if name != "token"}  # Another name of the same token.
        case.body = {name: subscription(value) if isinstance(value, dict) and "endpoint" in value else value for name, value in case.body.items()}
        if case.operation.path.endswith("/events"):
            case.body = case.body | {"userId": None if CALLER == USER else "user"}
    if not is_chosen(case):
        return
    for name, make in MADE_FOR_PATHS.items():
        if name in (case.path_parameters or {}):
            case.path_parameters = {**case.path_parameters, name: make()}
    if isinstance(case.body, dict) and case.operation.label != "POST /api/rooms":
        made = {name: make() for name, make in MADE_FOR_BODIES.items() if name in case.body}
        case.body = {name: value for name, value in case.body.items() if not ("client" in made and name in ("member", "roomid"))} | made
        if isinstance(case.body.get("data"), dict) and "trigger" in case.body:
            case.body |= {"trigger": "call_initiated"}
    if case.operation.path == "/webhooks/call":
        sent = case.as_transport_kwargs()
        body = requests.Request("POST", URL, data=sent.get("data"), json=sent.get("json")).prepare().body or b""
        body = body.encode() if isinstance(body, str) else body
        signature = hmac.new(WEBHOOK_SECRET.encode(), body, hashlib.sha256).hexdigest()
        case.headers = {**(case.headers or {}), "X-CometChat-Signature": signature}


@schemathesis.hook
def after_call(context, case, response):
    with lock:
        answers[case.operation.label, response.status_code] += 1


@atexit.register
def write_counts():
    Path(COUNTS).write_text(json.dumps([[*key, count] for key, count in answers.items()]))
