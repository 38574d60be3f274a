"""Many tokens that expire together are purged and recorded while rooms are made. `make bench` measures a million (docs/benchmarks.md)."""

import json
import re
import subprocess
import time

import pytest

from mayfly import Client, new_token
from processes import BENCH_BINARY, Broker, audit_verify, clean_environment, eventually

pytestmark = pytest.mark.campaign

TOKENS = 20_000
OVER = 2.0


def lags(broker):
    """The broker's histogram: {bound in seconds: purges that were not later}."""
    found = re.findall(r'^mayfly_purge_lag_seconds_bucket\{le="([\d.]+|\+Inf)"\} (\d+)$', broker.metrics(), re.M)
    return {float(bound.replace("+Inf", "inf")): int(count) for bound, count in found}


def test_twenty_thousand_tokens_in_two_seconds(state, processes):
    broker = Broker(state)
    processes.append(broker)
    broker.start()  # makes the database
    assert broker.stop() == 0
    first = time.time() + 12
    filled = subprocess.run(
        [BENCH_BINARY, "fill", "--state", state.folder, "--rooms", str(TOKENS // 2), "--first", str(int(first * 1000)), "--over", str(int(OVER * 1000))],
        capture_output=True, text=True, timeout=30, env=clean_environment())
    assert filled.returncode == 0, filled.stderr
    assert json.loads(filled.stdout)["tokens"] == TOKENS
    assert state.counts()["token"] == TOKENS and state.counts()["accepted"] == TOKENS // 2
    broker.start()
    client, made, seen = Client(broker.port), [], set()
    assert time.time() < first, "the machine was too slow to begin in time"

    def gone():
        """Rooms are made and joined all the while."""
        made.append(client.room())
        with state.database() as database:
            (left,) = database.execute("SELECT count(*) FROM token WHERE expires < ?", ((first + OVER) * 1000,)).fetchone()
        seen.add(left)
        return not left
    eventually(gone, first + OVER + 20 - time.time(), what="the purge of all")
    assert TOKENS in seen and time.time() > first + OVER, "some went before their time"
    assert len(seen) > 3, f"they go as they end, and not all at once: {seen}"
    assert state.counts()["token"] == 2 * len(made)
    client.status(made[0].roomid).expect(200)
    client.create(token=new_token()).expect(201)

    counted = lags(broker)
    assert counted[float("inf")] == TOKENS
    assert list(counted.values()) == sorted(counted.values())
    client.close()

    def purged():
        verified = audit_verify(state, more=["--json"])
        assert verified.returncode == 0, verified.stdout + verified.stderr
        return json.loads(verified.stdout)["purged"]
    eventually(lambda: purged() == TOKENS, 20, 0.5, "all purges in the log")
