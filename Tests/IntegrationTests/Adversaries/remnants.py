"""What is left on the disk of rows that are gone: not whole ones, which carving finds, but any piece."""

import carving

PIECE = 16


def cells(rows):
    """The blobs in {table: rows} but purge ids, which wait for the log when the row is gone."""
    return {value for found in rows.values() for row in found for name, value in row.items()
            if isinstance(value, bytes) and name not in ("purge_id", "creator_token", "joiner_token")}


def pieces(values):
    return {value[at:at + PIECE] for value in values for at in range(0, len(value) - PIECE + 1, PIECE)}


def remnants(database, earlier):
    """Pieces in this database's files of cells that earlier ones showed and that no row holds now."""
    gone = pieces(set().union(*(cells(carving.select(files)) for files in earlier))) - pieces(cells(carving.select(database)))
    return {(name, piece) for name, content in database.items() if not name.endswith("-shm") for piece in gone if piece in content}
