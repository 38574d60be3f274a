"""Several approvals, timeouts and withdrawals on PostgreSQL. The last test verifies the log."""

from functools import partial

from companion_world import CompanionWorld
from test_companion_pending import (PATIENCE, story, test_two_approvals_and_one_answer, test_an_answer_leaves_other_notifications,
                                    test_a_back_end_withdraws_an_approval, test_a_back_end_ends_a_session,
                                    test_a_back_end_names_the_user_of_a_session, test_the_log_has_each_kind_of_clearing)

make_world = partial(CompanionWorld, postgres=True, activityUpdateSeconds=1, approvalSeconds=PATIENCE)
