"""An app adds this repository by its URL, and gets the Swift client without the broker's C libraries."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from processes import REPOSITORY, clean_environment
from world import World

MANIFEST = """// swift-tools-version: 6.2
import PackageDescription

let package = Package(
    name: "app",
    dependencies: [.package(url: "{url}", branch: "main")],
    targets: [.executableTarget(name: "app", dependencies: [.product(name: "MayflyClient", package: "mayfly")])]
)
"""
PROGRAM = """import Foundation
import MayflyClient

let broker = URL(string: CommandLine.arguments[1])!
let ann = try Client(baseURL: broker, environment: .sandbox), ben = try Client(baseURL: broker, environment: .sandbox)
let code = JoinCode.random()
_ = try await ann.createRoom(code: code, token: PushToken(Data(repeating: 0xab, count: 32)))
let room = try await ben.acceptRoom(code: code)
for await event in await ben.join(room, over: .reports) {
    guard case .joined(let isPeerHere, let delivery) = event else { continue }
    print(isPeerHere, delivery)
    break
}
"""
HEADERS = ("sodium.h", "sqlite3.h", "nghttp2", "openssl", "postgresql", "libpq-fe.h", "wslay", "llhttp.h")


def hidden_headers():
    """The headers of the broker's C libraries on this machine."""
    folders = (Path("/usr/include"), Path("/usr/include/x86_64-linux-gnu"), Path("/usr/include/aarch64-linux-gnu"), Path("/usr/local/include"))
    return [folder / name for folder in folders for name in HEADERS if (folder / name).exists()]


def run_in(folder, *words):
    """Runs a program in a mount namespace of its own, in which those headers are empty and pkg-config finds nothing."""
    nothing = folder / "nothing"
    nothing.mkdir(exist_ok=True)
    hide = [f"mount --bind {nothing if path.is_dir() else '/dev/null'} {path}" for path in hidden_headers()]
    script = " && ".join([*hide, 'exec "$@"'])
    done = subprocess.run(
        ["unshare", "--map-root-user", "--mount", "sh", "-c", script, "sh", *map(str, words)], cwd=folder, capture_output=True, text=True,
        timeout=600, env=clean_environment(PKG_CONFIG_LIBDIR=nothing))
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


@pytest.fixture
def repository(tmp_path):
    """This work tree as a repository with one commit."""
    folder = tmp_path / "mayfly"
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=REPOSITORY, capture_output=True, check=True).stdout
    for name in filter(None, listed.split(b"\0")):
        source, copy = REPOSITORY / os.fsdecode(name), folder / os.fsdecode(name)
        if source.is_symlink() or source.exists():
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, copy, follow_symlinks=False)
    for words in (["init", "-q", "-b", "main"], ["add", "-A"], ["-c", "user.name=a", "-c", "user.email=a@b.example", "commit", "-q", "-m", "one"]):
        subprocess.run(["git", *words], cwd=folder, check=True)
    return folder


def test_an_app_adds_the_repository_by_its_url(repository, tmp_path):
    app = tmp_path / "app"
    (app / "Sources/app").mkdir(parents=True)
    (app / "Package.swift").write_text(MANIFEST.format(url=repository.as_uri()))
    (app / "Sources/app/main.swift").write_text(PROGRAM)
    swift = ("--cache-path", app / "cache", "--disable-sandbox")
    assert hidden_headers()
    run_in(app, "swift", "build", *swift)

    # What was built: the client, and no other target of the repository.
    modules = {path.stem for path in (app / ".build/debug/Modules").glob("*.swiftmodule")}
    assert modules == {"MayflyClient", "app"}
    plan = (app / ".build/debug.yaml").read_text()
    assert "MayflyClient" in plan and not any(f"Sources/Libraries/{name}" in plan for name in ("CSodium", "COpenSSL", "CSQLite", "Linux"))
    graph = json.loads(run_in(app, "swift", "package", *swift, "show-dependencies", "--format", "json"))
    assert [each["identity"] for each in graph["dependencies"]] == ["mayfly"] and graph["dependencies"][0]["dependencies"] == []

    with World() as world:
        assert run_in(app, ".build/debug/app", f"http://127.0.0.1:{world.broker.port}") == "false queued\n"
