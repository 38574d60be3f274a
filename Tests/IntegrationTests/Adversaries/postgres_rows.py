"""Every version of every row in a PostgreSQL server's tables, deleted ones too, as files that `Thief` reads."""

import sqlite3
import tempfile
from pathlib import Path

from carving import TABLES

_INTEGER, _TEXT = "bigint", "text"


class Heap:
    """What a thief reads from a server's tables now and then. Server settings keep deleted versions there (`autovacuum = off`)."""

    def __init__(self, server, schema):
        self.server, self.schema = server, schema
        self.versions = {name: {} for name in TABLES}
        server.run("CREATE EXTENSION IF NOT EXISTS pageinspect")

    def look(self):
        """Adds the versions of this moment, and returns the files of a thief: live rows as a database, and all versions seen so far."""
        live = {name: self._live(name) for name in TABLES}
        for name in TABLES:
            for row in (*live[name], *self._pages(name)):
                self.versions[name][tuple(row.values())] = row
        return {"mayfly.sqlite": _database(live), "versions": _database({name: rows.values() for name, rows in self.versions.items()})}

    def _live(self, name):
        return [dict(zip(TABLES[name], row)) for row in self.server.run(f"SELECT {', '.join(TABLES[name])} FROM {self.schema}.{name}")]

    def _pages(self, name):
        """Item by item, whatever its state."""
        leaves = self.server.run(
            f"SELECT relid::regclass::text, pg_relation_size(relid) / 8192 FROM pg_partition_tree('{self.schema}.{name}') WHERE isleaf "
            f"UNION SELECT '{self.schema}.{name}', pg_relation_size('{self.schema}.{name}') / 8192")
        for leaf, pages in leaves:
            columns = self.server.run(
                f"SELECT attname, format_type(atttypid, NULL) FROM pg_attribute WHERE attrelid = '{leaf}'::regclass AND attnum > 0 ORDER BY attnum")
            for page in range(pages):
                items = self.server.run(
                    f"SELECT t_attrs FROM heap_page_item_attrs(get_raw_page('{leaf}', {page}), '{leaf}'::regclass, true) WHERE t_attrs IS NOT NULL")
                for values, in items:
                    row = {column: _value(kind, value) for (column, kind), value in zip(columns, values)}
                    yield {column: row[column] for column in TABLES[name]}


def _value(kind, value):
    if value is None:
        return None
    if kind == _INTEGER:
        return int.from_bytes(value, "little", signed=True)
    return value.decode() if kind == _TEXT else bytes(value)


def _database(tables):
    """SQLite's bytes of a file with these rows."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows"
        connection = sqlite3.connect(path)
        for name, rows in tables.items():
            connection.execute(f"CREATE TABLE {name} ({', '.join(TABLES[name])})")
            connection.executemany(f"INSERT INTO {name} VALUES ({', '.join('?' * len(TABLES[name]))})", [tuple(row.values()) for row in rows])
        connection.commit()
        connection.close()
        return path.read_bytes()
