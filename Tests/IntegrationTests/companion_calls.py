"""The companion's calls, and how a test knows that a refused one left nothing behind."""

from contextlib import contextmanager

from processes import eventually

# A well-formed id that nothing has.
UNKNOWN = "A" * 22
ROUTES = [
    ("POST", "/api/push/register", {"deviceToken": "ab" * 32}),
    ("POST", "/api/push/live-activity/register", {"activityToken": "ab" * 32, "activityId": "a", "sessionId": "s"}),
    ("DELETE", f"/api/push/token/tok_{UNKNOWN}", None), ("GET", "/api/push/status", None),
    ("POST", "/api/push/clear-approval", {"requestId": UNKNOWN}), ("DELETE", "/api/push/session/s/notifications", None),
    ("POST", "/api/sessions/s/events", {"type": "approval_request", "data": {}}),
    ("POST", f"/api/approval/{UNKNOWN}/respond", {"approved": True}), ("GET", f"/api/approval/{UNKNOWN}", None)]


@contextmanager
def nothing_kept_by(world):
    """Fails if the block adds a row or a push."""
    eventually(lambda: world.state.jobs() == 0, what="the end of earlier pushes")
    before, pushes = world.state.counts(), len(world.simulator.pushes())
    yield
    assert world.state.counts() == before, "a refused request left rows behind"
    assert world.state.jobs() == 0 and len(world.simulator.pushes()) == pushes, "a refused request left a push behind"
