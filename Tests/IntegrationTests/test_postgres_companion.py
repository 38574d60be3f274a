"""A companion's story on PostgreSQL. The last test verifies the log."""

from functools import partial

from companion_world import CompanionWorld
from test_companion_flows import (phone, test_register_a_device, test_a_previous_token_is_destroyed, test_approval_request, test_answering_an_approval,
                                  test_clear_approval, test_session_notifications_are_cleared, test_progress, test_a_repeated_event_happens_once,
                                  test_events_over_a_socket, test_handoff, test_a_token_unknown_to_apple_is_destroyed,
                                  test_the_drill_counts_what_opens_for_a_user, test_the_log_verifies)

make_world = partial(CompanionWorld, postgres=True)
