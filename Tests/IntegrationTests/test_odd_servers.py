"""Logs from faulty HTTP servers, and bad use of the verifiers."""

import gzip
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from logs import START, make, moment, spell, story, write
from processes import REPOSITORY, mayfly
from verifiers import by_python, run_python, verify
from log_fixtures import WITNESSES, bases, folder, go  # noqa: F401


class Server(ThreadingHTTPServer):
    """Serves a folder; `odd` answers some paths in its own way."""
    daemon_threads = True

    def __init__(self, folder):
        self.folder, self.odd, self.asked = Path(folder), {}, []
        super().__init__(("127.0.0.1", 0), Answer)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}/log"

    def handle_error(self, *_):
        pass


class Answer(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def give(self, content, status=200, length=None, **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(content) if length is None else length))
        self.end_headers()
        self.wfile.write(content)

    def do_GET(self):
        path = self.path.removeprefix("/log/")
        self.server.asked.append(path)
        if path in self.server.odd:
            return self.server.odd[path](self)
        file = self.server.folder / path
        return self.give(file.read_bytes()) if file.is_file() else self.give(b"no", 404)


def endless(answer):
    answer.send_response(200)
    answer.end_headers()
    while True:
        answer.wfile.write(bytes(65536))


@pytest.mark.campaign
def test_odd_servers(go, bases):
    base = bases[3]
    server = Server(base.folder)
    tile, bundle = "tile/0/000", "tile/entries/001"
    content = base.content(bundle)
    answers = [
        ("endless", endless, ("unreadable",)),
        ("an error", lambda answer: answer.give(b"", 500), ("unreadable",)),
        ("gone", lambda answer: answer.give(b"", 410), ("missing",)),
        ("forbidden", lambda answer: answer.give(b"", 403), ("unreadable",)),
        ("cut short", lambda answer: answer.give(content[:100], length=len(content)), ("damaged", "unreadable", "tree")),
        ("half a gzip", lambda answer: answer.give(gzip.compress(content)[:60], Content_Encoding="gzip"), ("damaged", "unreadable", "tree")),
        ("no length", lambda answer: answer.give(content, length="x"), ("damaged", "unreadable", "tree")),
        ("no HTTP", lambda answer: answer.wfile.write(b"\x00\xffhello\r\n\r\n"), ("unreadable",)),
        ("nothing", lambda answer: None, ("unreadable",)),
        ("in a circle", lambda answer: answer.give(b"", 302, Location=answer.path), ("unreadable",)),
        ("to a file", lambda answer: answer.give(b"", 302, Location="file:///etc/passwd"), ("unreadable",)),
        ("nowhere", lambda answer: answer.give(b"", 302, Location="http://["), ("unreadable",)),
    ]
    try:
        done = run_python(server.url, "--key", base.vkey)
        assert done.returncode == 0, done.stderr
        assert sorted(set(server.asked)) == sorted(set(base.paths)), "it asks for what the checkpoint covers, and nothing else"
        for path in ("checkpoint", tile, bundle):
            for what, answer, codes in answers:
                server.odd = {path: answer}
                code, words, _ = by_python(server.url, base.vkey)
                codes = (*codes, "signature") if path == "checkpoint" else codes
                if what == "no length" and code is None:
                    assert path == bundle, "read to the end of the connection, which is what it should be"
                    continue
                assert code in codes and words, f"{what} for {path}: {code}: {words}"
        # The same by the other program, for a few.
        for what, answer, _ in answers[:2] + answers[4:6]:
            server.odd = {bundle: answer}
            done = mayfly("audit", "verify", server.url, "--key", base.vkey)
            assert done.returncode == 1 and done.stderr.startswith("bad: ") and "crashed" not in done.stderr, f"{what}: {done.stderr}"
        server.odd = {tile: endless}
        done = run_python(server.url, "--key", base.vkey, memory=256 << 20)
        assert done.returncode == 1 and "Traceback" not in done.stderr, done.stderr
    finally:
        server.shutdown()
        server.server_close()
    assert by_python(server.url, base.vkey)[0] == "unreadable", "nobody listens"


def dripping(answer):
    content = (answer.server.folder / answer.path.removeprefix("/log/")).read_bytes()
    answer.send_response(200)
    answer.send_header("Content-Length", str(len(content)))
    answer.end_headers()
    drip(answer, content)


def dripping_before(answer):
    drip(answer, b"HTTP/1.0 200 OK\r\nX: " + b"x" * 1000)


def drip(answer, content):
    try:
        for byte in content:
            answer.wfile.write(bytes([byte]))
            time.sleep(0.1)
    except OSError:
        pass


@pytest.mark.campaign
def test_a_dripping_server_is_given_up(bases, monkeypatch):
    """A verification has a deadline, even if the server is never silent for long."""
    monkeypatch.setattr(verify, "PATIENCE", 0.5)
    server = Server(bases[3].folder)
    try:
        for path, answer in (("checkpoint", dripping), ("tile/entries/001", dripping), ("tile/0/000", dripping_before)):
            server.odd = {path: answer}
            begin = time.monotonic()
            code, words, _ = by_python(server.url, bases[3].vkey)
            assert code == "unreadable" and "longer than" in words and time.monotonic() - begin < 5, f"{path}: {code}: {words}"
        server.odd = {}
        assert by_python(server.url, bases[3].vkey)[0] is None
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.campaign
def test_partial_tiles_that_are_gone(folder):
    """The log has grown since its checkpoint was read: 410 for a partial tile counts like 404."""
    publications = story(700, seed=1, resolution=60)
    entries = [entry for window in publications for entry in window]
    log = make(folder / "gone", [entries[:300], entries[300:]])
    server = Server(log.folder)
    server.odd = {"checkpoint": lambda answer: answer.give(log.checkpoints[0])}
    try:
        for status in (404, 410):
            for path in log.folder.rglob("*.p/44"):
                server.odd[str(path.relative_to(log.folder))] = lambda answer: answer.give(b"", status)
            assert len(server.odd) == 3
            done = mayfly("audit", "verify", server.url, "--key", log.vkey)
            assert done.returncode == 0, f"{status}: {done.stderr}"
            assert by_python(server.url, log.vkey)[0] is None, status
    finally:
        server.shutdown()
        server.server_close()


def test_bad_use_of_the_python_verifier(bases, tmp_path):
    base = bases[0]
    empty = tmp_path / "empty"
    empty.write_bytes(b"")
    for arguments, status in (
            ((base.folder, "--key", base.vkey), 0), ((f"{base.folder}/", "--key", base.vkey, "--since", base.folder / "checkpoint"), 0),
            ((), 2), ((base.folder,), 2), (("--key", base.vkey), 2), ((base.folder, "--key", ""), 2), ((base.folder, "--key", "a+b"), 2),
            ((base.folder, "--key", base.vkey[:-1]), 2), ((base.folder, "--key", base.vkey.replace("mayfly", "Mayfly")), 2),
            ((base.folder, "--key", WITNESSES[0].vkey), 2), ((base.folder, "--key", base.vkey, "--what"), 2),
            ((tmp_path / "nowhere", "--key", base.vkey), 1), ((empty, "--key", base.vkey), 1), (("http://127.0.0.1:1/", "--key", base.vkey), 1),
            ((base.folder, "--key", base.vkey, "--since", tmp_path / "nothing"), 1), ((base.folder, "--key", base.vkey, "--since", empty), 1),
            (("--key", base.vkey, "--proof", empty), 1), (("--key", base.vkey, "--proof", tmp_path), 1),
            ((base.folder, "--key", base.vkey, "--policy", tmp_path / "nothing"), 1)):
        done = run_python(*arguments)
        assert done.returncode == status and "Traceback" not in done.stderr, f"{arguments}: {done.returncode}: {done.stderr}"
        assert status or len(done.stdout.splitlines()) == 1
        assert status != 1 or done.stderr.startswith("bad: ") and len(done.stderr.splitlines()) == 1, done.stderr


def test_shown_entries_are_one_line_each(tmp_path):
    """`audit show` escapes newlines and terminal controls."""
    start = {"at": moment(START), "binary": 64 * "0", "node": "n", "op": "broker.started", "policy": 64 * "0", "resolution": 60, "version": "1"}
    forged = b'{"x":"\x1b]0;owned\x07"}\n' + spell({"at": moment(START), "cause": "ended", "id": 32 * "a", "op": "token.purged"})
    vkey = write(tmp_path / "log", [[spell(start), forged]])
    shown = mayfly("audit", "show", tmp_path / "log", "--key", vkey)
    assert shown.returncode == 1 and "purged" not in shown.stdout and "\x1b" not in shown.stdout + shown.stderr
    assert shown.stderr.startswith("bad: ") and "entry 1" in shown.stderr


@pytest.mark.parametrize("origin", ['o","cosignatures":9,"x":"\\', 'o"', "o\u009b31mX", "o\\"])
def test_json_whatever_the_origin(tmp_path, origin):
    vkey = write(tmp_path / "log", story(30), origin=origin)
    told = mayfly("audit", "verify", tmp_path / "log", "--key", vkey, "--json").stdout
    assert (json.loads(told)["good"], json.loads(told)["origin"], json.loads(told)["cosignatures"]) == (True, origin, None), told
    assert "\u009b" not in told


def test_the_python_verifier_is_short():
    """An auditor can read it in half an hour."""
    assert len((REPOSITORY / "audit/verify.py").read_text().splitlines()) < 375
