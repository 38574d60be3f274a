"""The story of calls on PostgreSQL, and a log that verifies."""

from functools import partial

from call_world import CallWorld
from test_call_flows import (phone, test_a_phone_rings, test_register_a_phone, test_a_new_token_replaces_the_old, test_alert_and_call_tokens_are_separate,
                             test_a_token_that_apple_no_longer_knows_is_purged, test_a_phone_is_removed)

make_world = partial(CallWorld, postgres=True)


def test_the_log_verifies(world):
    """Runs last."""
    world.whole_log()
