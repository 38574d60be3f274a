"""Where keys may live: wrapped under a key from a file or a command, on a file system in memory, behind a link."""

import base64
import os
import re
import shutil
import subprocess

import pytest

import ledger
from canary import Canaries
from clocks import EPOCH, Clocks
from key_reader import destroyed, keys, opens, sealing, token_rows, unwrapped
from mayfly import ask
from preload import library
from processes import ORIGIN, Broker, State, audit_verify, eventually, mayfly


class Place:
    """A state folder whose keys were made with these flags, and its broker."""

    def __init__(self, flags=None, keys="throwaway"):
        self.flags = flags or {}
        self.state = State(keys=None)
        self.state.folder.parent.mkdir(exist_ok=True)
        self.clocks = Clocks(self.state.prints / "clocks")
        made = self.keys(keys, "--origin", ORIGIN)
        assert made.returncode == 0, made.stderr
        self.broker = Broker(self.state, **{name.replace("-", "_"): value for name, value in self.flags.items()})

    def __enter__(self):
        self.clocks.to_next_epoch()
        return self

    def __exit__(self, *_):
        self.broker.kill()
        self.state.remove()

    def keys(self, *words, flags=None):
        flags = self.flags if flags is None else flags
        return mayfly("keys", *words, "--state", self.state.folder, *(part for name in flags for part in (f"--{name}", flags[name])))

    def start(self):
        self.broker.start(**self.clocks.environment)

    def step(self, read):
        """Lets an epoch pass. `read` returns the key file's bytes, or other bytes while it is exchanged."""
        before = eventually(lambda: keys(read()), what="a key file")
        self.clocks.go_on(EPOCH)
        spare = self.flags.get("ratchet-key", self.state / "keys/ratchet.key").with_suffix(".key.new")
        eventually(lambda: getattr(keys(read()), "base", 0) == before.base + 1 and not any(spare.read_bytes()), 15, what="a step")
        return keys(read())

    def refuses(self, *words, status=1, **options):
        """A broker and `keys show` refuse it with this status and say why."""
        before = dict(self.broker.options)
        self.broker.options.update({name.replace("_", "-"): value for name, value in options.items()})
        self.broker.start(wait=False, **self.clocks.environment)
        assert self.broker.child.wait(15) == status, self.broker.printed()
        flags = {name: value for name, value in self.broker.options.items() if name in ("wrapping-key", "ratchet-key") and value}
        shown = self.keys("show", flags=flags)
        assert shown.returncode == status, shown.stdout
        for word in words:
            assert word in self.broker.printed() and word in shown.stderr, (word, self.broker.printed(), shown.stderr)
        assert len(self.broker.printed().splitlines()) <= 2, self.broker.printed()
        self.broker.options = before
        return self.broker.printed()


@pytest.fixture
def wrapping(tmp_path):
    path = tmp_path / "wrapping.key"
    path.write_bytes(os.urandom(32))
    path.chmod(0o600)
    return path


def test_keys_wrapped_under_a_file(wrapping):
    """A room's life with a key file that opens nothing alone, and each mismatch of file and key."""
    secret, canaries = wrapping.read_bytes(), Canaries()
    canaries.add("wrapping key", secret)
    canaries.add("a key derived from it", sealing.derive(secret, "wrapping"))
    with Place({"wrapping-key": wrapping}) as place:
        path = place.state / "keys/ratchet.key"
        place.start()
        room = ask(place.broker, lambda client: client.room())
        row = token_rows(place.state)[room.creator.ref]

        def read():
            try:
                return unwrapped(path.read_bytes(), secret)
            except AssertionError:  # zeros
                return b""
        seen = [path.read_bytes()]
        for _ in range(2):
            place.step(read)
            seen.append(path.read_bytes())
        inside = [unwrapped(file, secret) for file in seen]
        bases = [keys(file).base for file in inside]
        assert bases == [bases[0], bases[0] + 1, bases[0] + 2]
        assert len({file[32:56] for file in seen}) == 3, "a nonce came twice"
        for file, image in zip(seen, inside):
            assert keys(file) is None and opens(file, row, room.roomid) is None
            assert opens(image, row, room.roomid) == room.creator.token
            assert not any(image[at:at + 16] in file for at in range(16, len(image) - 15)), "keys are in the file"
        assert place.broker.stop() == 0
        place.start()
        assert ask(place.broker, lambda client: client.status(room.roomid).expect(200)).json["creatorHasToken"]
        assert place.broker.stop() == 0
        shown = place.keys("show")
        name = sealing.derive(secret, "wrapping-id")[:16].hex()
        assert shown.returncode == 0 and f"wrapped under the key {name}" in shown.stdout, shown.stdout

        place.refuses("the key file is wrapped", status=2, wrapping_key=None)
        other = wrapping.with_name("other")
        other.write_bytes(base64.b64encode(os.urandom(32)) + b"\n")
        other.chmod(0o600)
        place.refuses("wrapped under another key", wrapping_key=other)
        place.refuses("is missing", "no other is made", wrapping_key=wrapping.with_name("none"))
        assert not wrapping.with_name("none").exists()
        other.chmod(0o644)
        place.refuses("others could read", wrapping_key=other)
        other.chmod(0o600)
        other.write_bytes(bytes(32))
        place.refuses("must be 32 random bytes", wrapping_key=other)
        assert canaries.in_files(place.state.folder, place.state.prints) == []
        # The same key, as text.
        other.write_bytes(base64.b64encode(secret) + b"\n")
        assert place.keys("show", flags={"wrapping-key": other}).returncode == 0


@pytest.mark.campaign
def test_an_unwrapped_file_is_refused_beside_a_wrapping_key(state, wrapping):
    shown = mayfly("keys", "show", "--state", state.folder, "--wrapping-key", wrapping)
    assert shown.returncode == 2 and "not wrapped" in shown.stderr, shown.stderr
    # Without its wrapping key nothing is made.
    fresh = State(keys=None)
    made = mayfly("keys", "init", "--state", fresh.folder, "--origin", ORIGIN, "--wrapping-key", wrapping.with_name("none"))
    assert made.returncode == 1 and "is missing" in made.stderr and not fresh.folder.exists()
    fresh.remove()


@pytest.mark.campaign
def test_keys_wrapped_under_a_commands_output(wrapping, tmp_path):
    """What the command prints as errors is dropped, and no shell reads its words."""
    secret = wrapping.read_bytes()
    command = tmp_path / "ask-kms"
    command.write_text(f'#!/bin/sh\necho "asked for $1: SECRET-ERROR" >&2\n[ "$1" = "$HOME;x" ] && exit 1\n[ "$1" = good ] && base64 {wrapping}\n')
    command.chmod(0o700)
    with Place({"wrapping-key": f"command:{command} good"}) as place:
        assert unwrapped((place.state / "keys/ratchet.key").read_bytes(), secret)
        place.start()
        room = ask(place.broker, lambda client: client.room())
        assert place.broker.stop() == 0
        printed = place.broker.printed()
        printed += place.refuses("failed with status 1", "--wrapping-key", wrapping_key=f"command:{command} bad")
        printed += place.refuses("can't be started", wrapping_key="command:/none/such")
        printed += place.refuses("must be 32 random bytes", wrapping_key=f"command:/bin/echo {command};cat {wrapping}")
        printed += place.refuses("must be 32 random bytes", wrapping_key=f"command:/bin/echo $(cat {wrapping})")
        assert "SECRET-ERROR" not in printed
        for bad in ("command:", "command:cat x", "command: "):
            shown = place.keys("show", flags={"wrapping-key": bad})
            assert shown.returncode == 2 and "absolute path" in shown.stderr, shown.stderr
        # In the environment, as a unit has it; and for all commands.
        shown = mayfly("keys", "show", "--state", place.state.folder, MAYFLY_WRAPPING_KEY=f"command:{command} good")
        assert shown.returncode == 0, shown.stderr
        drill = mayfly("drill", "--room", "-", "--state", place.state.folder, MAYFLY_WRAPPING_KEY=f"command:{command} good")
        assert "wrapped" not in drill.stderr, drill.stderr
        rotated = place.keys("rotate", "--origin", "next.test/log", "--archive", place.state.parent / "archive")
        assert rotated.returncode == 0, rotated.stderr
        place.broker.options["origin"] = None
        place.start()
        ask(place.broker, lambda client: client.status(room.roomid).expect(200))


@pytest.fixture
def memory(tmp_path):
    """A file system in memory. `memory.forget()` empties it, as a restart of the machine would."""
    if os.geteuid() != 0:
        pytest.skip("NOT TESTED: a file system in memory needs root")

    class Memory:
        path = tmp_path / "memory"

        def mount(self):
            subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m,mode=700", "tmpfs", self.path], check=True)

        def forget(self):
            subprocess.run(["umount", "-l", self.path], check=True)
            self.mount()
    memory = Memory()
    memory.path.mkdir()
    memory.mount()
    yield memory
    subprocess.run(["umount", "-l", memory.path], check=True)


@pytest.mark.campaign
def test_a_lost_key_file_in_memory_purges_everything(memory):
    """After a restart of the machine the start is refused until the operator renews the keys. Then everything is purged and recorded."""
    path = memory.path / "ratchet.key"
    with Place({"ratchet-key": path}) as place:
        assert {file.name for file in memory.path.iterdir()} == {"ratchet.key", "ratchet.key.new"}
        assert not list((place.state / "keys").glob("ratchet*"))
        place.start()
        lost = ask(place.broker, lambda client: [client.room(expires=3600) for _ in range(20)])
        pending = ask(place.broker, lambda client: client.create("waits-for-ever", token="ab" * 32).expect(201).json)
        rows = token_rows(place.state)
        refs = [pending["ref"], *(side.ref for room in lost for side in (room.creator, room.joiner))]
        assert all(ref in rows for ref in refs) and len(rows) == len(refs)
        place.step(path.read_bytes)
        # Whatever the broker was doing: the keys are gone, the disk is not.
        place.broker.kill()
        memory.forget()
        place.refuses(str(path), "keys renew")
        sealed = {row["sealed"] for row in rows.values()}
        renewed = place.keys("renew")
        assert renewed.returncode == 0 and str(path) in renewed.stdout, renewed.stderr
        place.start()
        assert token_rows(place.state) == {} and place.state.counts()["room"] == 0
        content = b"".join(file.read_bytes() for file in place.state.folder.glob("mayfly.sqlite*"))
        assert not any(value[24:56] in content for value in sealed), "the database still has rows that can't be opened"
        for room in lost:
            ask(place.broker, lambda client: client.status(room.roomid).expect(404))
        room = ask(place.broker, lambda client: client.room(expires=3600))
        row = token_rows(place.state)[room.creator.ref]
        assert opens(path.read_bytes(), row, room.roomid) == room.creator.token
        place.step(path.read_bytes)

        def told():
            log = ledger.read(place.state)
            purged = [log.of(ref, "token.purged") for ref in refs]
            return all(purged) and purged
        for entries in eventually(told, what="the purges in the log"):
            assert [entry["cause"] for entry in entries] == ["ended"]
        assert place.broker.stop() == 0
        verified = audit_verify(place.state)
        assert verified.returncode == 0, verified.stdout + verified.stderr
        # Before every start, as a unit does it: with the file there it does nothing.
        again = place.keys("renew")
        assert again.returncode == 0 and "nothing was done" in again.stdout
        place.start()
        ask(place.broker, lambda client: client.status(room.roomid).expect(200))


@pytest.mark.campaign
def test_a_renewal_killed_at_each_call():
    """Afterwards the key file is whole or missing, and the next renewal makes it."""
    state = State()
    try:
        folder, call, killed = state / "keys", 0, True
        while killed:
            call += 1
            for path in folder.glob("ratchet.key*"):
                path.unlink()
            renewed = mayfly("keys", "renew", "--state", state.folder, LD_PRELOAD=library("kill_at.c"), KILL_AT=call)
            killed = renewed.returncode == -9
            assert killed or renewed.returncode == 0, renewed
            for words in (["renew"], ["show"]):
                ran = mayfly("keys", *words, "--state", state.folder)
                assert ran.returncode == 0, f"killed at call {call}: {ran.stderr}"
            spare = folder / "ratchet.key.new"
            assert not spare.exists() or not any(spare.read_bytes()), f"killed at call {call}: keys are in the spare"
        assert call > 5, call
    finally:
        state.remove()


@pytest.fixture
def disk(tmp_path):
    """A file system of one's own in a file, whose blocks can be read: `disk.mount(options)`, `disk.blocks()`."""
    if os.geteuid() != 0 or not shutil.which("mkfs.ext4", path="/usr/sbin:/sbin:/usr/bin"):
        pytest.skip("NOT TESTED: the blocks of a disk need root and mkfs.ext4")

    class Disk:
        path, image, mounted = tmp_path / "disk", tmp_path / "image", False

        def mount(self, options):
            self.image.write_bytes(b"")
            os.truncate(self.image, 32 << 20)
            subprocess.run(["/usr/sbin/mkfs.ext4", "-q", "-F", self.image], check=True)
            self.path.mkdir(exist_ok=True)
            if subprocess.run(["mount", "-o", f"loop,{options}", self.image, self.path]).returncode != 0:
                pytest.skip("NOT TESTED: the blocks of a disk need a loop device")
            self.mounted = True

        def blocks(self):
            subprocess.run(["umount", self.path], check=True)
            self.mounted = False
            return self.image.read_bytes()
    disk = Disk()
    yield disk
    if disk.mounted:
        subprocess.run(["umount", "-l", disk.path], check=True)


@pytest.mark.campaign
@pytest.mark.parametrize("options, wraps, remain", [
    ("data=ordered", False, False), ("data=journal", False, True), ("data=journal", True, False)])
def test_destroyed_keys_leave_the_blocks_of_ext4(disk, wrapping, options, wraps, remain):
    """As usually mounted. With data in the journal they stay, and wrapping makes them useless."""
    disk.mount(options)
    flags = {"ratchet-key": disk.path / "ratchet.key"} | ({"wrapping-key": wrapping} if wraps else {})
    with Place(flags) as place:
        def read():
            file = flags["ratchet-key"].read_bytes()
            try:
                return unwrapped(file, wrapping.read_bytes()) if wraps else file
            except AssertionError:  # zeros
                return b""
        place.start()
        first = read()
        last = [place.step(read) for _ in range(3)][-1]
        assert place.broker.stop() == 0
    blocks = disk.blocks()
    dead = destroyed(first, last.base)[::2]
    assert len(dead) == 3
    found = sum(chain in blocks for chain in dead)
    print(f"{options}, {'wrapped' if wraps else 'not wrapped'}: {found} of {len(dead)} destroyed chains are on the disk")
    assert (found > 0) == remain
    assert any(chain in blocks for _, chain in last.generations.values()) != wraps


@pytest.mark.campaign
def test_an_unmounted_folder_of_keys_is_refused(memory):
    """Otherwise keys would be written to the disk below."""
    with Place() as place:
        missing = memory.path / "not-mounted/ratchet.key"
        made = mayfly("keys", "init", "--state", place.state.parent / "new", "--origin", ORIGIN, "--ratchet-key", missing)
        assert made.returncode == 1 and "Mount or make it first" in made.stderr, made.stderr
        assert not (place.state.parent / "new").exists() and not missing.parent.exists()
        renewed = place.keys("renew", flags={"ratchet-key": missing})
        assert renewed.returncode == 1 and "Mount or make it first" in renewed.stderr, renewed.stderr
        # Nothing was noted as lost.
        place.start()


@pytest.mark.campaign
@pytest.mark.parametrize("way", ["mounted", "linked"])
def test_the_folder_of_keys_may_be_in_memory(memory, way):
    """Mounted at keys/ or linked to. A restart of the machine loses the log's key as well, so a new state folder and log begin."""
    with Place() as place:
        folder = place.state / "keys"
        if way == "linked":
            for file in folder.iterdir():
                shutil.copy2(file, memory.path)
            shutil.rmtree(folder)
            folder.symlink_to(memory.path)
        else:
            kept = {file.name: file.read_bytes() for file in folder.iterdir()}
            subprocess.run(["mount", "--bind", memory.path, folder], check=True)
            for name, content in kept.items():
                (folder / name).write_bytes(content)
                (folder / name).chmod(0o600)
        try:
            place.start()
            place.step((memory.path / "ratchet.key").read_bytes)
            place.broker.kill()
            for file in memory.path.iterdir():
                file.unlink()
            place.broker.start(wait=False, **place.clocks.environment)
            assert place.broker.child.wait(15) == 1 and re.search("ledger.key is missing", place.broker.printed())
        finally:
            if way == "mounted":
                subprocess.run(["umount", "-l", folder], check=True)
