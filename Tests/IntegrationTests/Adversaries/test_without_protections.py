"""A short story on a quiet broker, then the same with one protection switched off, which the checks must notice."""

from concurrent.futures import ThreadPoolExecutor

import pytest

import table
from processes import eventually
from stage import Stage
from test_outputs_and_files import check_locked
from thief import Thief
from truth import Phone, Truth, six_digits
from verdict import hold

pytestmark = pytest.mark.campaign


class ShortStory:
    """A token replaced, some withdrawn, a room closed, one that expired, an answer kept, a knock delivered; and images of what is left.

    At last a token is replaced and the broker killed at once.
    """

    def __init__(self, switched_off=None):
        with Stage(switched_off, push=True) as stage:
            truth = self.truth = Truth(stage)
            client = stage.client()
            begin = stage.now
            self.accepted = truth.pair(client, code=six_digits(), names=(None, "bob"))
            self.changed, self.closed, *self.left = (truth.pair(client) for _ in range(10))
            self.short = truth.pair(client, life=60)
            self.knocked = truth.pair(client, joiner=Phone.browser(stage.push.subscribe()))
            # Last, so that no other row overwrites these.
            truth.replace(client, self.changed, 1)
            # Several, because the rows that stay may be moved over those that are gone.
            for room in self.left:
                truth.withdraw(client, room, 1)
            truth.close(client, self.closed)
            self.early = stage.image()
            # Each of these finds the write-ahead log empty, and nothing but itself asks for that again: an answer that was kept for two
            # minutes, and a push.
            stage.pass_to(begin + 125, step=5)
            stage.settle()
            self.later = stage.image()
            browser = self.knocked.phones[2].subscription
            assert truth.knock(client, self.knocked, by=1) == "queued"
            eventually(lambda: stage.simulator.web_pushes(browser), what="the push")
            stage.wait_for_pushes()
            # Not a whole minute: in it a window of the public log ends, which empties the write-ahead log, too.
            before = stage.clock.scrubbed
            stage.pass_(15, step=5)
            stage.wait_for_scrub(before)
            self.after_a_push = stage.image()
            stage.pass_to(self.short.expires + 600)
            self.late = stage.image()
            if switched_off is None:
                self.crashed = truth.pair(client)
                truth.replace(client, self.crashed, 1)
                stage.crash()
                self.after_a_crash = stage.image()


def member(database, keys, *rooms):
    return Thief(database.database, keys.keys, [room.roomid for room in rooms], tries_codes=False).work()


def check_erased(story):
    got = member(story.later, story.later, story.changed, *story.left, story.closed)
    hold(got, story.truth, table.MEMBER_WITH_DISK, "quiet broker: tokens replaced, withdrawn, closed a minute ago",
         "both sides' present tokens", tokens=story.changed.tokens.union(*(room.tokens for room in story.left)))


def check_forgotten(story):
    got = Thief(story.later.database, story.later.keys, words=["bob"]).work()
    hold(got, story.truth, table.ACCEPTED, "quiet broker: an accept's answer, a minute after its two minutes",
         "for ten minutes the used code, which opens nothing", codes={story.accepted.code})


def check_pushed(story):
    got = Thief(story.after_a_push.database, story.after_a_push.keys, tries_codes=False).work()
    hold(got, story.truth, table.ACCEPTED, "quiet broker: a knock, 15 s after it was delivered", "nothing")


def check_keys_gone(story):
    for image in (story.early, story.late):
        hold(member(image, story.late, story.short), story.truth, table.AFTER_EXPIRY, "quiet broker: everything in the folder of keys",
             "nothing: the key no longer exists")


def check_erased_by_the_next_start(story):
    got = member(story.after_a_crash, story.after_a_crash, story.crashed)
    hold(got, story.truth, table.MEMBER_WITH_DISK, "a token replaced just before a crash", "both sides' present tokens",
         tokens=story.crashed.tokens)


@pytest.fixture(scope="module")
def stories():
    """With everything in place, and without one protection each, all at the same time."""
    with ThreadPoolExecutor(4) as threads:
        found = {name: threads.submit(ShortStory, name) for name in (None, "secure_delete", "truncate", "zeroing")}
        return {name: story.result() for name, story in found.items()}


@pytest.mark.parametrize("check", [check_erased, check_forgotten, check_pushed, check_keys_gone, check_erased_by_the_next_start])
def test_the_checks_pass_with_all_protections(stories, check):
    check(stories[None])


@pytest.mark.parametrize("protection, check, why", [
    ("secure_delete", check_erased, "a token's row, with its room id"), ("truncate", check_erased, "a token's row, with its room id"),
    ("truncate", check_forgotten, "retry, with its join code"), ("truncate", check_pushed, "a job"),
    ("zeroing", check_keys_gone, "its epoch's key")])
def test_the_checks_fail_without_their_protection(stories, protection, check, why):
    """The thief then gets what the protection keeps from it."""
    with table.aside(), pytest.raises(AssertionError, match=why):
        check(stories[protection])


def test_memory_is_not_locked_without_mlock():
    with Stage("locking") as stage, table.aside(), pytest.raises(AssertionError, match="kB are locked"):
        check_locked(stage.broker.child.pid)
