"""kill -9 of broker and simulator under load, five times each; `push_kills.py` by itself does it a hundred times."""

import os
import random

import pytest

from push_kills import run

pytestmark = [pytest.mark.campaign, pytest.mark.alone]

KILLS = int(os.environ.get("MAYFLY_TEST_KILLS", 5))


def test_kills_lose_no_acknowledged_push_and_repeat_none_needlessly(tmp_path):
    totals = run(tmp_path, KILLS, random.randrange(2**32), count=1500, longest=0.7)
    assert totals["acknowledged"] >= 100 * KILLS and totals["browsers"] >= 10 * KILLS and totals["again"] > 0, totals
