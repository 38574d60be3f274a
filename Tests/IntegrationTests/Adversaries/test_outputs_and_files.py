"""Secrets outside the state folder: output, metrics, errors, other files, and memory that may be swapped out."""

import os
import re
from pathlib import Path

import pytest

import table
from canary import search
from truth import Phone

pytestmark = pytest.mark.campaign


# Promise: no-secret-in-output
def test_output_contains_no_secret(story):
    """Logs have one level. The errors are those of calls that carry secrets in every wrong place."""
    client, waiting = story.stage.client(), story.truth.create(story.client)
    room = story.truth.pair(story.client, Phone(), Phone.browser(story.stage.push.subscribe()))
    token, browser = room.phones[1].token.hex(), room.phones[2].subscription
    answers = [
        client.send("POST", "/api/rooms", f'{{"client1_token":"{token}"'.encode()),
        client.create(waiting.code, room.clients[2], token), client.accept(waiting.code, waiting.clients[1], token[:-1]),
        client.accept(room.code, "stranger", token), client.put_token(room.roomid_text, room.clients[1], token + "zz"),
        client.put_token(room.roomid_text + "A", room.clients[1], token), client.send("GET", f"/api/room/{room.roomid_text}"),
        client.send("GET", f"/api/room?roomid={room.roomid_text}"), client.delete_token(room.roomid_text, waiting.clients[1]),
        client.create(waiting.code, room.clients[2], browser), client.put_token(room.roomid_text + "A", room.clients[2], browser),
        client.accept(waiting.code, waiting.clients[1], browser | {"endpoint": browser["endpoint"].replace("https", "http")}),
        client.put_token(room.roomid_text, room.clients[2], browser | {"keys": browser["keys"] | {"p256dh": browser["keys"]["p256dh"][:-1]}}),
        client.send("GET", f"/{token}", headers={"X-Token": token}), client.send("PUT", f"/api/rooms/{waiting.code}", {"token": token})]
    assert all(answer.status >= 400 for answer in answers), [answer.status for answer in answers]
    metrics = story.stage.broker.metrics().encode()
    assert b"mayfly_rooms" in metrics
    story.stage.simulator.fault(always=[{"reason": "BadDeviceToken"}, {"problem": "badToken"}])
    story.truth.knock(client, room, by=2)
    story.truth.knock(client, room, by=1)
    story.stage.wait_for_pushes()
    story.stage.simulator.fault()
    said = [answer.body + repr(answer.headers).encode() for answer in answers] + [metrics, story.stage.broker.printed().encode()]
    found = search(said, story.truth.canaries())
    table.record(
        table.OUTPUT, f"secrets in {len(answers)} errors, the metrics, {len(story.stage.broker.printed().splitlines())} lines of log",
        ", ".join(found) or "nothing", "nothing")
    assert not found


def test_only_files_in_the_state_folder_are_written(story):
    """By any library. No open file is unnamed."""
    opened = [line.split(" ", 1) for line in story.stage.files.read_text().splitlines()]
    assert any(path.endswith("mayfly.sqlite-wal") for _, path in opened), "the watch does not see what there is"
    folder = str(story.stage.state.folder)
    # The kernel's core filter isn't a file.
    inside = (folder + "/", "/dev/", "/proc/self/coredump_filter")
    elsewhere = {f"{call} {path}" for call, path in opened if path != folder and not path.startswith(inside)}
    try:
        links = [os.readlink(link) for link in Path(f"/proc/{story.stage.broker.child.pid}/fd").iterdir()]
    except PermissionError:
        links = []
    ours = (*inside, str(story.stage.state.prints), "socket:", "anon_inode:", "pipe:")
    elsewhere |= {link for link in links if link != folder and not link.startswith(ours) or link.endswith("(deleted)")}
    table.record(table.OUTPUT, f"{len(opened)} files opened to be written", ", ".join(sorted(elsewhere)) or "none outside the state folder", "none")
    assert not elsewhere


def locked(process):
    """(kB locked, kB of that in the swap) of a process; needs root, since the broker lets no one else look."""
    try:
        text = Path(f"/proc/{process}/smaps").read_text()
    except PermissionError:
        pytest.skip("NOT TESTED: a broker's memory map is read by root alone")
    regions = [region for region in re.split(r"^(?=[0-9a-f]+-[0-9a-f]+ )", text, flags=re.M) if re.search(r"^VmFlags:.* lo\b", region, re.M)]
    return tuple(sum(int(re.search(rf"^{name}: +(\d+) kB", region, re.M)[1]) for region in regions) for name in ("Locked", "Swap"))


def check_locked(process):
    """The arena's first chunk, 64 KiB, and the keys of a generation, 72 KiB."""
    size, swapped = locked(process)
    table.record(
        table.OUTPUT, "memory that may be swapped out", f"{size} kB of secrets are locked, {swapped} kB of them swapped",
        "secrets in locked memory only")
    assert size >= 64 + 72 and swapped == 0, f"{size} kB are locked"


def test_secrets_are_locked_into_memory(story):
    check_locked(story.stage.broker.child.pid)
