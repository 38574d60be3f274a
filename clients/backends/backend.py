"""A back end that reports events, asks for approvals and rings phones, with Python's standard library alone."""

import base64
import hashlib
import hmac
import json
import os
import sys
import time
import uuid
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import Request, urlopen

BROKER = os.environ["BROKER"]


def secret(variable):
    with open(os.environ[variable], "rb") as file:
        return file.read().strip()


def jwt():
    """Lasts five minutes. The secret is that of the app's login, an HS256 key that the broker has, too."""
    now = int(time.time())
    parts = {"alg": "HS256", "typ": "JWT"}, {"sub": "back-end", "scope": "broker.notify", "iat": now, "exp": now + 300}
    encoded = [base64.urlsafe_b64encode(part).rstrip(b"=") for part in (json.dumps(part).encode() for part in parts)]
    code = hmac.digest(secret("LOGIN_SECRET"), b".".join(encoded), "sha256")
    return b".".join([*encoded, base64.urlsafe_b64encode(code).rstrip(b"=")]).decode()


def send(method, path, body=None, headers=None):
    """Repeats what the broker had no time for. Other errors are raised."""
    data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    for is_last in (False, False, True):
        try:
            headers = headers or {"Authorization": f"Bearer {jwt()}"}
            with urlopen(Request(BROKER + path, data, headers, method=method), timeout=10) as answer:
                return json.load(answer)
        except HTTPError as error:
            if error.code not in (429, 503) or is_last:
                raise
            time.sleep(int(error.headers.get("Retry-After", 1)))


def report(user, session, kind, **data):
    # The id makes a repeat harmless.
    event = {"userId": user, "type": kind, "data": data, "eventId": str(uuid.uuid4())}
    return send("POST", f"/api/sessions/{quote(session, safe='')}/events", event)


def ask(user, session):
    """Returns `approved`, `denied`, `timed_out` or `withdrawn`, after a minute at most."""
    request = report(user, session, "approval_request")["requestId"]
    while (status := send("GET", f"/api/approval/{request}")["status"]) == "pending":
        time.sleep(1)
    return status


def ring(caller, receiver, call, kind="audio"):
    """Returns how many phones ring."""
    data = {"sessionId": call, "type": kind, "initiator": {"uid": caller}, "receiver": {"uid": receiver}, "receiverType": "user"}
    body = json.dumps({"trigger": "call_initiated", "data": data}).encode()
    signature = hmac.new(secret("WEBHOOK_SECRET"), body, hashlib.sha256).hexdigest()
    return send("POST", "/webhooks/call", body, {"X-CometChat-Signature": signature})["rang"]


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["report", user, session, kind]:
            print(report(user, session, kind)["pushes"])
        case ["ask", user, session]:
            print(ask(user, session))
        case ["ring", caller, receiver, call]:
            print(ring(caller, receiver, call))
        case _:
            sys.exit("backend report USER SESSION TYPE | ask USER SESSION | ring CALLER RECEIVER CALL")
