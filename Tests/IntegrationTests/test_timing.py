"""The send slots of a policy, as the operator sees them. `OutboxTests` has their rules, `TimingTests` what times reveal."""

import json

from processes import REPOSITORY, mayfly
from world import World


def timed_policy(path, slot, jitter):
    policy = json.loads((REPOSITORY / "policies/rooms.json").read_text())
    policy["templates"]["peer_waiting"] |= {"sendSlotSeconds": slot, "jitterSeconds": jitter}
    path.write_text(json.dumps(policy))
    return path


def test_policy_show_prints_the_chance_of_a_guess(tmp_path):
    shown = mayfly("policy", "show", timed_policy(tmp_path / "policy.json", 30, 15)).stdout
    assert "(a guess at its second is right at most 1 time in 30)" in shown


def test_a_window_shorter_than_a_slot_is_a_warning(tmp_path):
    with World(apns=False, policy=timed_policy(tmp_path / "policy.json", 2, 1)) as world:
        assert "cut the send slots of 2 s" in world.broker.printed()
