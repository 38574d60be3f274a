"""A back end that reports events, asks for approvals and rings phones, with Python's standard library alone."""

import base64
import hashlib
import hmac
import json
import os
import sys
import time
import uuid
from http.client import HTTPException
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import HTTPRedirectHandler, Request, build_opener

BROKER = os.environ["BROKER"]


def secret(variable):
    """The first line of a file: while a webhook's secret is replaced, the broker's file has two."""
    with open(os.environ[variable], "rb") as file:
        return file.readline().strip()


class NoRedirects(HTTPRedirectHandler):
    """The broker never redirects, and the JWT is for nobody else."""
    def redirect_request(self, *_):
        return None


def jwt():
    """Returns a JWT that is valid for five minutes, signed with the login's HS256 key."""
    now = int(time.time())
    parts = {"alg": "HS256", "typ": "JWT"}, {"sub": "back-end", "scope": "broker.notify", "iat": now, "exp": now + 300}
    encoded = [base64.urlsafe_b64encode(part).rstrip(b"=") for part in (json.dumps(part).encode() for part in parts)]
    signature = hmac.digest(secret("LOGIN_SECRET"), b".".join(encoded), "sha256")
    return b".".join([*encoded, base64.urlsafe_b64encode(signature).rstrip(b"=")]).decode()


def send(method, path, body=None, headers=None):
    """Retries lost answers, 429 and 502 to 504 twice, after Retry-After, a minute at most, or a second. Raises other errors."""
    data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    for is_last in (False, False, True):
        try:
            # Retry-After may be longer than the life of a JWT.
            request = Request(BROKER + path, data, headers or {"Authorization": f"Bearer {jwt()}"}, method=method)
            with build_opener(NoRedirects).open(request, timeout=10) as answer:
                return json.load(answer)
        except HTTPError as error:
            if error.code not in (429, 502, 503, 504) or is_last:
                raise
            wait = error.headers.get("Retry-After", "")
            time.sleep(min(int(wait), 60) if wait.isdecimal() else 1)
        except (HTTPException, OSError):
            if is_last:
                raise
            time.sleep(1)


def report(user, session, kind, event_id=None, **data):
    """A repeat with the same `event_id` within twelve hours pushes nothing."""
    event = {"userId": user, "type": kind, "data": data, "eventId": event_id or str(uuid.uuid4())}
    return send("POST", f"/api/sessions/{quote(session, safe='')}/events", event)


def ask(user, session, event_id=None):
    """Returns `approved`, `denied`, `timed_out` or `withdrawn`. Takes a minute at most, or longer if it is told to retry later."""
    request = report(user, session, "approval_request", event_id)["requestId"]
    while (status := send("GET", f"/api/approval/{request}")["status"]) == "pending":
        time.sleep(1)
    return status


def ring(caller, receiver, call, kind="audio"):
    """Returns how many phones ring: none if they have rung for this call."""
    data = {"sessionId": call, "type": kind, "initiator": {"uid": caller}, "receiver": {"uid": receiver}, "receiverType": "user"}
    body = json.dumps({"trigger": "call_initiated", "data": data}).encode()
    signature = hmac.new(secret("WEBHOOK_SECRET"), body, hashlib.sha256).hexdigest()
    return send("POST", "/webhooks/call", body, {"X-CometChat-Signature": signature})["rang"]


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["report", user, session, kind, *event_id]:
            # The status is for `task_complete`. Other events ignore it.
            print(report(user, session, kind, *event_id, status="success")["pushes"])
        case ["ask", user, session]:
            print(ask(user, session))
        case ["ring", caller, receiver, call]:
            print(ring(caller, receiver, call))
        case _:
            sys.exit("backend report USER SESSION TYPE [EVENT] | ask USER SESSION | ring CALLER RECEIVER CALL")
