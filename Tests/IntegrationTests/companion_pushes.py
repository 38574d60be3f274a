"""Checks each push field by field, by the seed's document, Apple's rules and the approved texts."""

import re
import time
from datetime import datetime

from companion_client import CLEARED, ContentState, Notification
from processes import BUNDLE_ID

HEADERS = {
    "apns-topic", "apns-push-type", "apns-priority", "apns-expiration", "apns-collapse-id", "apns-id", "content-length", "content-type",
    "user-agent"}
APNS_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def seconds(moment):
    return datetime.fromisoformat(moment.replace("Z", "+00:00")).timestamp()


def check_headers(push, device, kind, priority, ttl, collapse, since=15):
    """`since`: how long ago the event may have been."""
    headers = push["headers"]
    suffix = {"alert": "", "background": "", "liveactivity": ".push-type.liveactivity"}[kind]
    assert set(headers) <= HEADERS, set(headers) - HEADERS
    assert headers["apns-topic"] == BUNDLE_ID + suffix
    assert headers["apns-push-type"] == kind
    assert headers["apns-priority"] == str(priority)
    assert headers["apns-collapse-id"] == collapse
    assert APNS_ID.fullmatch(headers["apns-id"]), headers["apns-id"]
    expiration = int(headers["apns-expiration"])
    assert time.time() - since + ttl - 1 <= expiration <= time.time() + ttl + 1, f"expires {expiration - time.time():.0f} s from now"
    assert expiration <= seconds(device.answer["expiresAt"]), "Apple keeps it longer than the token lives"


def _device_push(push, device, kind, priority, ttl, collapse, payload):
    check_headers(push, device, kind, priority, ttl, collapse)
    assert push["payload"] == payload
    return Notification.decode(push["payload"])


def _alert(title, body, category, subtitle=None, **more):
    alert = {"title": title, "body": body} | ({"subtitle": subtitle} if subtitle else {})
    return {"alert": alert, "sound": "default", "category": category, "mutable-content": 1} | more


def check_approval(push, device, session, request, expires):
    payload = push["payload"]
    # The same form as in the answers of calls and on the socket.
    assert abs(seconds(payload["expiresAt"]) - expires) <= 1, (payload["expiresAt"], expires)
    return _device_push(push, device, "alert", 10, 60, request, {
        "aps": _alert(
            "Approval Needed", "Open the app to see what it wants to do", "APPROVAL_REQUEST", "A tool waits for you", badge=1,
            **{"interruption-level": "time-sensitive"}),
        "type": "approval", "toolName": "Tool", "requestId": request, "sessionId": device.handle(session),
        "expiresAt": payload["expiresAt"]})


def check_question(push, device, session, question):
    return _device_push(push, device, "alert", 10, 3600, question, {
        "aps": _alert("Your assistant has a question", "Open the app to read it", "QUESTION_ASKED"),
        "type": "question", "questionId": question, "sessionId": device.handle(session)})


def check_task(push, device, session, success):
    texts = ("Task Complete", "Your assistant finished working", "TASK_COMPLETE") if success else ("Task Failed", "An error occurred", "TASK_ERROR")
    return _device_push(push, device, "alert", 10, 3600, device.handle(session), {
        "aps": _alert(*texts), "type": "complete" if success else "error", "sessionId": device.handle(session)})


def check_clear_approval(push, device, request, reason="approved_on_other_device"):
    aps = {"alert": {"body": CLEARED[reason]}, "interruption-level": "passive", "content-available": 1}
    return _device_push(push, device, "alert", 5, 3600, request, {
        "aps": aps, "type": "clear_approval", "clearApprovalId": request, "requestId": request, "reason": reason})


def check_clear_session(push, device, session):
    return _device_push(push, device, "background", 5, 3600, device.handle(session), {
        "aps": {"content-available": 1}, "type": "clear_session", "sessionId": device.handle(session)})


def check_handoff(push, device, session, to):
    # Its collapse id isn't the session's, or it would replace the notification on the screen.
    return _device_push(push, device, "background", 5, 3600, device.handle(session, "handoff"), {
        "aps": {"content-available": 1}, "type": "session_handoff", "sessionId": device.handle(session), "handedOffTo": to})


def _activity_push(push, device, session, priority, ttl, event, state, since=15, **more):
    check_headers(push, device, "liveactivity", priority, ttl, device.handle(session), since)
    aps = push["payload"]["aps"]
    stamp = aps["timestamp"]
    assert isinstance(stamp, int) and abs(time.time() - stamp) < since
    assert push["payload"] == {
        "aps": {"timestamp": stamp, "event": event, "content-state": state} | {key: stamp + after for key, after in more.items()}}
    return ContentState.decode(aps["content-state"])


def content(status, elapsed=0, operation=None, todo=None, request=None):
    return {
        "status": status, "currentOperation": operation, "elapsedSeconds": elapsed, "approvalRequest": request,
        "todoProgress": todo and {"completed": todo[0], "total": todo[1], "currentTask": None}}


def check_update(push, device, session, state, priority=5, ttl=300, since=15):
    return _activity_push(push, device, session, priority, ttl, "update", state, since, **{"stale-date": 300})


def check_activity_approval(push, device, session, request, elapsed=0):
    waiting = {"requestId": request, "toolName": "Tool", "summary": "Open the app to see what it wants to do"}
    return check_update(push, device, session, content("awaitingApproval", elapsed=elapsed, request=waiting), 10, 60)


def check_activity_question(push, device, session):
    return check_update(push, device, session, content("awaitingAnswer", operation="Waiting for your response"), 10)


def check_end(push, device, session, success=True):
    return _activity_push(
        push, device, session, 10, 3600, "end", content("completed" if success else "error"), **{"dismissal-date": 900})
