"""Clocks of processes under test that tests move, while they run too."""

import mmap
import struct
import time

from preload import library

EPOCH, DAY = 300, 86_400
_PASSED, _LEAPS, _SCRUBBED = range(3)


class Clocks:
    """How far the clocks are ahead in the processes that got `environment`. As `struct control` in clocks.c has it."""

    def __init__(self, path, ahead=0):
        path.write_bytes(bytes(24))
        with open(path, "r+b") as file:
            self.map = mmap.mmap(file.fileno(), 24)
        self.environment = {"LD_PRELOAD": library("clocks.c"), "TEST_CLOCKS": path}
        self.ahead = ahead

    def _get(self, place):
        return struct.unpack_from("q", self.map, place * 8)[0]

    def _add(self, place, seconds):
        struct.pack_into("q", self.map, place * 8, self._get(place) + int(seconds * 1000))

    @property
    def ahead(self):
        """How many seconds all clocks are ahead, as if the machine had slept."""
        return self._get(_PASSED) / 1000

    @ahead.setter
    def ahead(self, seconds):
        struct.pack_into("q", self.map, _PASSED * 8, int(seconds * 1000))

    @property
    def now(self):
        """The wall clock, in unix seconds."""
        return time.time() + (self._get(_PASSED) + self._get(_LEAPS)) / 1000

    @property
    def scrubbed(self):
        """How many checkpoints emptied the write-ahead log."""
        return self._get(_SCRUBBED)

    def go_on(self, seconds):
        """Lets time pass, after a short wait: a thread that has just woken must first compute its next sleep."""
        time.sleep(0.05)
        self._add(_PASSED, seconds)

    def to_next_epoch(self):
        """To a few seconds after the beginning of an epoch."""
        self.go_on(EPOCH - self.now % EPOCH + 5)

    def leap(self, seconds):
        """Someone sets the wall clock."""
        self._add(_LEAPS, seconds)


def environments(*parts):
    """Environments of several preloaded libraries, as one."""
    together = {name: value for part in parts for name, value in part.items()}
    preloaded = ":".join(str(part["LD_PRELOAD"]) for part in parts if "LD_PRELOAD" in part)
    return together | ({"LD_PRELOAD": preloaded} if preloaded else {})
