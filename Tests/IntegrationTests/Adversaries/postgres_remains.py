"""Where a PostgreSQL server keeps bytes of rows, and for how long after their deletion."""

import os
import time
from contextlib import suppress

# A piece of a value that is still in a file. Values are random, so it occurs nowhere else.
PIECE = 16


def read(folder):
    """The files in a folder, as bytes by path. They may go away meanwhile."""
    for root, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(root, name)
            with suppress(OSError), open(path, "rb") as file:
                # A segment of the write-ahead log is zeros beyond its end.
                yield path, file.read().rstrip(b"\0")


def places(server, name=""):
    """What a thief of a server's disk finds, by place."""
    owners = {path: f"table {relation.partition('_')[0]}" for relation, path in server.run(
        "SELECT relname, pg_relation_filepath(oid) FROM pg_class WHERE relkind IN ('r', 'i') AND relnamespace::regnamespace::text LIKE 'test_%'")}
    # ANALYZE copies values of rows to the statistics. Long ones are in their TOAST table.
    owners |= {path: "statistics (pg_statistic)" for path, in server.run(
        "SELECT pg_relation_filepath(unnest(ARRAY[oid, reltoastrelid])) FROM pg_class WHERE relname = 'pg_statistic'")}
    found = {}
    for path, content in read(server.data):
        within = os.path.relpath(path, server.data)
        if within.startswith("pg_wal/"):
            place = "write-ahead log"
        elif within.startswith("base/"):
            place = owners.get(within, "other tables, temporary files")
        else:
            place = "other files"
        found.setdefault(name + place, []).append(content)
    found[name + "server log"] = [server.log.read_bytes()] if server.log.exists() else []
    return found


def left(contents, values):
    """How many of the values are there, at least in part."""
    return sum(any(value[at:at + PIECE] in content for content in contents for at in (0, len(value) - PIECE)) for value in values)


class Watch:
    """Looks at all places again and again. For each place and kind of value: when one was last seen there, seconds after the deletion."""

    def __init__(self, servers, values, deleted):
        self.servers, self.values, self.deleted = servers, values, deleted
        self.seen, self.now = {}, {}

    def look(self):
        moment = time.monotonic() - self.deleted
        self.now = {}
        for name, server in self.servers.items():
            for place, contents in places(server, name).items():
                for kind, values in self.values.items():
                    count = left(contents, values)
                    self.now[place, kind] = count
                    if count:
                        self.seen[place, kind] = moment
        return self.now

    def until(self, seconds, pause=0.5):
        while time.monotonic() - self.deleted < seconds:
            self.look()
            time.sleep(pause)

    def lines(self):
        """A table of the places that had something."""
        kinds = list(self.values)
        yield "  ".join(["where".ljust(36), *(kind.ljust(20) for kind in kinds)]).rstrip()
        for place in sorted({place for place, _ in self.seen}):
            yield "  ".join([place.ljust(36), *(self.last(place, kind).ljust(20) for kind in kinds)]).rstrip()

    def last(self, place, kind):
        """In words."""
        if (place, kind) not in self.seen:
            return "never"
        count = self.now[place, kind]
        total = len(self.values[kind])
        return f"{count} of {total} still there" if count else f"{self.seen[place, kind]:.0f} s"
