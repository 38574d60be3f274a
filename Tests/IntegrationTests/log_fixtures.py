"""Folders for logs made to order, and the verifier in Go: fixtures for those that import them."""

import base64
import os
import random
import shutil
import tempfile
from pathlib import Path

import pytest

import damages
import logs
from honest import spelled
from verifiers import Go

SEED = int(os.environ.get("MAYFLY_TEST_SEED", 4))
WITNESSES = [logs.Key(f"witness.test/{number}", bytes([number]) * 32, 4) for number in range(4)]

@pytest.fixture(scope="module")
def go():
    go = Go()
    yield go
    go.close()


@pytest.fixture(scope="module")
def folder():
    """A folder for many small files, in memory where there is such a place."""
    shared = Path("/dev/shm")
    path = Path(tempfile.mkdtemp(prefix="mayfly-logs-", dir=shared if os.access(shared, os.W_OK) else None))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(scope="module")
def bases(folder):
    return [damages.Base(folder / f"base-{count}", count, SEED + count, outages=1) for count in (40, 256, 257, 530, 1100)]


def chances(name, count):
    """A source of chance for each of `count` cases. A failing case prints its number."""
    print(f"seed {SEED}")
    return [(number, random.Random(f"{SEED} {name} {number}")) for number in range(count)]


def signed(folder, entries, **more):
    """The entries as a log of their own; returns folder and key."""
    place = folder / "signed"
    shutil.rmtree(place, ignore_errors=True)
    return place, logs.write(place, spelled(entries), **more)


def in_base64(data):
    return base64.b64encode(data).decode()
