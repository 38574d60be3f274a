"""The story of a room on PostgreSQL: create, accept, knock, repeat, close, and a log that verifies."""

from functools import partial

from test_pushes import test_no_push_when_the_peer_is_present, test_presence_call_pushes_too, test_unregistered_purges
from test_retries import test_a_create_may_be_repeated, test_an_accept_may_be_repeated
from test_rooms import (test_a_creator_can_not_join_its_own_room, test_close_destroys_both_tokens_at_once, test_create_again_after_the_accept_is_refused,
                        test_create_and_accept, test_one_side_can_not_act_as_the_other, test_replace_and_withdraw_a_token)
from world import World

make_world = partial(World, postgres=True)


def test_the_log_verifies(world):
    """Runs last."""
    world.whole_log()
