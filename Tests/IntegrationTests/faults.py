"""Faults of the file system, one at a time, by a preloaded library. Shared memory selects the call that fails."""

import errno
import mmap
import struct

from preload import library


class Faults:
    """Which call on files below a folder fails in the processes that got `environment`. As `struct control` in file_faults.c has it."""

    FAILS, WRITES_HALF, WRITES_HALF_AND_FAILS, DIES, DONE_AND_FAILS, WAITS = range(1, 7)
    SIZE = 40 + 32 + 32 + 256

    def __init__(self, state, below="ledger"):
        self.path = state.prints / "faults"
        self.path.write_bytes(bytes(self.SIZE))
        with open(self.path, "r+b") as file:
            self.map = mmap.mmap(file.fileno(), self.SIZE)
        self.environment = {"LD_PRELOAD": library("file_faults.c"), "TEST_FAULTS": self.path, "TEST_FAULTS_BELOW": state / below}

    def arm(self, call, kind=FAILS, error=errno.EIO, only=""):
        """Strikes the `call`-th call from now on, or every call if it is -1. `only`: counts calls of this name only."""
        self.map[0:8] = bytes(8)
        self.map[72:104] = only.encode().ljust(32, b"\0")
        self.map[8:24] = struct.pack("qq", kind, error)
        self.map[0:8] = struct.pack("q", call)

    def wait(self, ms=-1):
        """From now on each opening of a file takes `ms` milliseconds, or lasts until `disarm`."""
        self.arm(-1, self.WAITS, ms, only="open")

    def disarm(self):
        self.arm(0)

    @property
    def calls(self):
        return struct.unpack("q", self.map[24:32])[0]

    @property
    def struck(self):
        return struct.unpack("q", self.map[32:40])[0]

    @property
    def last(self):
        """Name and path of the call that was struck last."""
        return tuple(self.map[start:end].split(b"\0")[0].decode() for start, end in ((40, 72), (104, 360)))
