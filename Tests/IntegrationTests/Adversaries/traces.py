"""The traces of a room and its tokens: rows, entries of the ledger, pushes, and what two of them share."""

import sqlite3

import ledger
from opening import is_row_of
from processes import eventually


def rows(world, name, **where):
    """The rows of a table, as dictionaries."""
    with world.state.database() as database:
        database.row_factory = sqlite3.Row
        condition = " AND ".join(f"{column} = ?" for column in where) or "true"
        return [dict(row) for row in database.execute(f"SELECT * FROM {name} WHERE {condition}", tuple(where.values()))]


def token_row(world, ref):
    return next((row for row in rows(world, "token") if is_row_of(bytes.fromhex(ref), row)), None)


def room_row(world, ref):
    """The room that has this token on one of its sides."""
    token = token_row(world, ref)
    [row] = rows(world, "room", room=token["room"])
    assert row["creator_token" if token["slot"] == 1 else "joiner_token"] == token["purge_id"]
    return row


def knock(client, roomid, name, **more):
    return client.presence(roomid, name, **more).expect(202).json["delivery"]


def pushed(world, token, count=1):
    """Waits for exactly so many pushes to a token."""
    pushes = eventually(lambda: len(found := world.simulator.pushes(token)) >= count and found, what=f"{count} pushes")
    assert len(pushes) == count, f"{len(pushes)} pushes to one token, not {count}"
    return pushes


def idle(world):
    """Waits until every push has met its end."""
    eventually(lambda: world.state.jobs() == 0, what="the end of all pushes")


def log(world):
    """The ledger, once it has everything that has happened until now."""
    waiting = "unsequenced" if world.state.schema else "waiting"

    def whole():
        with world.state.database() as database:
            if database.execute(f"SELECT (SELECT count(*) FROM entry) + (SELECT count(*) FROM {waiting})").fetchone()[0]:
                return None
            size = database.execute("SELECT size FROM log").fetchone()[0]
        found = ledger.read(world.state)
        return found if found.checkpoint.size == size else None
    return eventually(whole, what="the ledger up to now")


def purges(log, ref):
    return [entry["cause"] for entry in log.of(ref, "token.purged")]


def parts(row, size):
    """All substrings of so many bytes in a row's values. A room's index begins with its expiry, which is a column as well."""
    expires = row.get("expires", 0).to_bytes(8, "big")
    blobs = [value.removeprefix(expires) for value in row.values() if isinstance(value, bytes)]
    return {blob[start:start + size] for blob in blobs for start in range(len(blob) - size + 1)}


def same(one, other):
    """The columns in which two rows are equal, except for empty ones."""
    return {column for column in one if one[column] == other.get(column) and one[column] not in (None, 0)}


def correlation(first, second):
    """Spearman's: 1 when both lists have their common members in one order, -1 in opposite ones, about 0 when neither tells of the other.
    By chance alone its size is seldom above 3 / sqrt(n)."""
    common = set(first) & set(second)
    one = {member: rank for rank, member in enumerate(member for member in dict.fromkeys(first) if member in common)}
    other = {member: rank for rank, member in enumerate(member for member in dict.fromkeys(second) if member in common)}
    n = len(common)
    assert n > 30, f"{n} are too few to tell"
    return 1 - 6 * sum((one[member] - other[member]) ** 2 for member in common) / (n * (n * n - 1))
