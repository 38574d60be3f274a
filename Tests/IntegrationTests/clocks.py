"""Clocks of processes under test that tests move while they run."""

import mmap
import struct
import subprocess
import tempfile
import time
from pathlib import Path

EPOCH, DAY = 300, 86_400
_library = None


def library():
    """Builds `moving_clocks.c` once."""
    global _library
    if _library is None:
        folder = Path(tempfile.mkdtemp(prefix="mayfly-clocks-"))
        source = Path(__file__).with_name("moving_clocks.c")
        subprocess.run(
            ["gcc", "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", folder / "clocks.so", source, "-ldl"], check=True)
        _library = folder / "clocks.so"
    return _library


class Clocks:
    """How far the clocks are ahead in the processes that got `environment`. As `struct control` in moving_clocks.c has it."""

    def __init__(self, state):
        path = state.prints / "clocks"
        path.write_bytes(bytes(16))
        with open(path, "r+b") as file:
            self.map = mmap.mmap(file.fileno(), 16)
        self.environment = {"LD_PRELOAD": library(), "TEST_CLOCKS": path}

    def _add(self, place, seconds):
        self.map[place:place + 8] = struct.pack("q", struct.unpack("q", self.map[place:place + 8])[0] + int(seconds * 1000))

    @property
    def now(self):
        """The wall clock, in unix seconds."""
        return time.time() + sum(struct.unpack("qq", self.map[:])) / 1000

    def go_on(self, seconds):
        """Time passes, once whoever has just woken sleeps again: a sleep that begins now and was worked out before would be too long."""
        time.sleep(0.05)
        self._add(0, seconds)

    def to_next_epoch(self):
        """To a few seconds after the beginning of an epoch."""
        self.go_on(EPOCH - self.now % EPOCH + 5)

    def leap(self, seconds):
        """Someone sets the wall clock."""
        self._add(8, seconds)


def environments(*parts):
    """Environments of several preloaded libraries, as one."""
    together = {name: value for part in parts for name, value in part.items()}
    return together | {"LD_PRELOAD": ":".join(str(part["LD_PRELOAD"]) for part in parts)}
