"""Checks each push field by field, by the seed's document, Apple's rules and the approved texts."""

from companion_pushes import check_headers
from monitor_client import PrinterState

TEXTS = {
    "print_started": ("Print Started", "A printer has begun", "running"), "print_complete": ("Print Complete! 🎉", "A printer is done", "complete"),
    "print_failed": ("Print Failed ⚠️", "A printer has stopped", "failed"), "print_paused": ("Print Paused", "A printer waits", "paused"),
    "progress_milestone": ("{}% Complete", "A printer is at work", "running")}


def check_push(push, phone, prefix, kind, progress=None):
    """Checks headers and payload. A print's state and its progress are two notifications."""
    check_headers(push, phone.device, "alert", 10, 3600, phone.handle(prefix, "progress" if kind == "progress_milestone" else "printer"))
    title, body, status = TEXTS[kind]
    printer = phone.handle(prefix)
    state = {"type": kind, "status": status, "prefix": printer} | ({} if progress is None else {"progress": progress})
    assert push["payload"] == {
        "aps": {"alert": {"title": title.format(progress), "body": body}, "sound": "default", "thread-id": printer, "mutable-content": 1},
        "printerState": state}
    return PrinterState.decode(push["payload"])
