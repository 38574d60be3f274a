"""Apps with accounts: what the database, the key file, or both of several moments give of their users' tokens.

One broker's two days, with clocks that the test moves. `alice` and `bob` are names that the thief guesses; the others are random.
"""

import json
import secrets
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import pytest

import carving
import ledger
import table
from audience_thief import AudienceThief
from canary import Canaries, search
from companion_client import Caller, Device, Phone
from companion_pushes import seconds
from companion_world import settings, users
from mayfly import base64url_bytes
from opening import is_row_of
from processes import eventually, subscription_id
from stage import DAY, Stage
from truth import Phone as Browser

pytestmark = pytest.mark.campaign

GUESSED = ("alice", "bob", "nobody")
LIMITS = {
    "deviceLifeSeconds": 2 * DAY, "activityLifeSeconds": 7_200, "sessionLifeSeconds": DAY, "activityUpdateSeconds": 3_600, "approvalSeconds": 1_800,
    "answerKeptSeconds": 600}
EVERYTHING = "every audience's token until it expires: the broker alone can open these"
ABSENT = "no token, no user, no session; of one step, which registrations are one user's"


def address(device):
    """What is sealed of its token or subscription."""
    return bytes.fromhex(device.token) if isinstance(device.token, str) else Browser.browser(device.token).token


@dataclass(eq=False)
class User:
    name: str
    phone: Phone
    session: str
    devices: list = field(default_factory=list)
    activities: list = field(default_factory=list)

    def tokens(self, devices=True, activities=True):
        return {address(one) for one in (self.devices if devices else []) + (self.activities if activities else [])}

    @property
    def refs(self):
        return {bytes.fromhex(device.ref) for device in self.devices + self.activities}


class Story:
    def __init__(self, switched_off=None):
        self.is_scrubbed = switched_off != "truncate"
        self.stage = Stage(switched_off, push=True, settings=lambda state: settings(state, **LIMITS))
        try:
            self.jwts = users(self.stage.state)
            self.back_end_name = "back-end-" + secrets.token_hex(8)
            self.back_end = self._caller(Caller(self.stage.broker, self.jwts.back_end(self.back_end_name, life=30 * DAY)))
            self._play()
        except BaseException:
            print(self.stage.broker.printed())
            self.close()
            raise

    def close(self):
        self.stage.close()

    def _caller(self, caller):
        self.stage.clients.append(caller.http)
        return caller

    def user(self, name=None, device=None):
        name = name or "user-" + secrets.token_hex(8)
        phone = self._caller(Phone(self.stage.broker, self.stage.simulator, self.jwts.token(name, life=30 * DAY), name))
        user = User(name, phone, "session-" + secrets.token_hex(8))
        self.add_device(user, device)
        user.activities.append(phone.start_activity(user.session, "activity-" + secrets.token_hex(8)))
        return user

    def add_device(self, user, token=None):
        user.devices.append(self._register(user, Device(token) if token else Device()))
        return user.devices[-1]

    def _register(self, user, device):
        device.answer = user.phone.register(device.token).expect(200).json
        return device

    def _pass(self, moment, step):
        """Lets time pass until expired rows have left the write-ahead log, too."""
        before = self.stage.clock.scrubbed
        self.stage.pass_to(moment, step)
        self.stage.pass_(65, step=15)
        if self.is_scrubbed:
            self.stage.wait_for_scrub(before)

    def _play(self):
        stage = self.stage
        self.alice, self.bob = self.user("alice"), self.user("bob")
        self.stranger, self.asked = self.user(), self.user()
        self.waiting, self.queued = (self.user(device=stage.push.subscribe()) for _ in range(2))
        self.users = [self.alice, self.bob, self.stranger, self.asked, self.waiting, self.queued]
        # One phone of two guessed users, and of two others.
        self.shared = self.add_device(self.bob, self.stranger.devices[0].token)
        self.add_device(self.asked, self.stranger.devices[0].token)
        self.deleted = self._register(self.alice, Device())
        for user in (self.waiting, self.asked):
            self.back_end.event(user.session, "state_change", {"newState": "processing"}, user.name).expect(202)
        stage.wait_for_pushes()
        self.back_end.event(self.waiting.session, "state_change", {"newState": "idle"}, self.waiting.name).expect(202)
        self.request = self.back_end.event(self.asked.session, "approval_request", {}, self.asked.name).expect(202).json["requestId"]
        with self.alice.phone.socket() as socket:
            socket.send({"type": "activity", "sessionId": self.alice.session, "deviceId": "iphone", "pushToken": self.alice.devices[0].token})
            assert socket.ask({"type": "ping"}) == {"type": "pong"}
        self.back_end.event(self.alice.session, "question_asked", {}, self.alice.name, eventId="event-1").expect(202)
        stage.wait_for_pushes()
        stage.simulator.fault(always=[{"token": subscription_id(self.queued.devices[0].token), "silent": True}])
        self.back_end.event(self.queued.session, "question_asked", {}, self.queued.name).expect(202)
        eventually(lambda: stage.state.jobs() == 1, what="one push that is under way")
        self.at_once = stage.image()

        self.alice.phone.delete_token(self.deleted.id).expect(200)
        self._pass(stage.now + 150, step=50)
        stage.simulator.fault()
        self.after_minutes = stage.image()

        self._pass(max(seconds(user.activities[0].answer["expiresAt"]) for user in self.users) + 620, step=1_800)
        self.after_activities = stage.image()

        # A new generation of keys seals these.
        stage.pass_(DAY, step=DAY / 2)
        self.later = [(user, self._register(user, Device())) for user in (self.alice, self.stranger)]
        self.after_a_day = stage.image()
        self._pass(max(seconds(device.answer["expiresAt"]) for user in self.users for device in user.devices) + 620, step=DAY / 2)
        self.at_the_end = stage.image()

    # What the thief could find.

    @property
    def all_tokens(self):
        """Those of the first day."""
        return set().union(*(user.tokens() for user in self.users)) | {bytes.fromhex(self.deleted.token)}

    @property
    def later_tokens(self):
        return {bytes.fromhex(device.token) for _, device in self.later}

    def thief(self, database, keys=None, words=GUESSED):
        names = [name for user in self.users for name in (user.session,)] + ["iphone", "event-1", self.back_end_name]
        return AudienceThief(
            database.database, keys.keys if keys else None, words,
            [bytes.fromhex(self.stranger.devices[0].token), bytes.fromhex(self.alice.devices[0].token)], names)


@pytest.fixture(scope="module")
def stories():
    """With everything in place, and without one protection each, all at the same time."""
    with ThreadPoolExecutor(3) as threads:
        found = {name: threads.submit(Story, name) for name in (None, "secure_delete", "truncate")}
    found = {name: story.result() for name, story in found.items()}
    yield found
    still_running = found[None].stage.broker.running
    for story in found.values():
        story.close()
    assert still_running, "the broker ended while this file's tests ran"


@pytest.fixture
def audiences(stories):
    return stories[None]


def nothing(got):
    return not (got.tokens or got.users or got.sessions or got.keys or got.refs or got.confirmed)


def images(story):
    return [story.at_once, story.after_minutes, story.after_activities, story.after_a_day, story.at_the_end]


def test_the_thief_reads_every_row(audiences):
    """Carving finds each row in the bytes that SQL reads."""
    rows = carving.select(audiences.at_once.database)
    refs = set().union(*(user.refs for user in audiences.users)) | {bytes.fromhex(audiences.deleted.ref)}
    assert len(rows["registration"]) == len(refs) and all(any(is_row_of(ref, row) for row in rows["registration"]) for ref in refs)
    assert len(rows["timer"]) == 1 and len(rows["job"]) == 1 and len(rows["session"]) >= 4
    assert sum(row["waiting"] is not None for row in rows["registration"]) >= 1
    carved = {name: [] for name in carving.TABLES}
    for content in audiences.at_once.database.values():
        for name, found in carving.carve(content).items():
            carved[name] += found
    for name in ("registration", "session", "timer", "job"):
        # A row with an update that waits is longer than SQLite keeps in one piece.
        assert all(row in carved[name] for row in rows[name] if not row.get("waiting")), f"{name}: carving misses rows that SQL shows"


def test_the_database_alone_opens_nothing(audiences):
    """Without a key guesses can't be confirmed, and two users' registrations of one phone can't be linked."""
    owners = {ref: user for user in audiences.users for ref in user.refs} | {bytes.fromhex(audiences.deleted.ref): audiences.alice}
    owners |= {bytes.fromhex(device.ref): (user, "later") for user, device in audiences.later}
    found = []
    for image in images(audiences):
        for files in (image, type("Backup", (), {"database": image.backup()})):
            got = audiences.thief(files).work()
            found.append(got)
            assert nothing(got), f"{got.said()} by {got.how}"
            rows = carving.select(files.database)["registration"]
            of = {row["purge_id"]: owner for row in rows for ref, owner in owners.items() if is_row_of(ref, row)}
            assert len(of) == len(rows)
            assert all(len({of[name] for name in pair}) == 1 for pair in got.links), "registrations of two users have something in common"
    # The design allows these. Without them the search would prove nothing.
    assert found[0].links
    table.record(
        table.DATABASE, "registrations, sessions, timers: opening rows, guessing users, tokens and names, comparing rows",
        "no token, user or session", ABSENT)


def test_registrations_of_two_days_are_unlinkable(audiences):
    """Registrations of one owner share the owner's index only within one place."""
    rows = carving.select(audiences.after_a_day.database)["registration"]
    for user, device in audiences.later:
        one, other = (next(row for row in rows if is_row_of(bytes.fromhex(ref), row)) for ref in (user.devices[0].ref, device.ref))
        same = {name for name in one if one[name] == other[name] and isinstance(one[name], bytes)}
        assert not same, f"{same} of two days"
        assert one["owner"][8:] != other["owner"][8:] and one["audience"][8:] != other["audience"][8:]
    table.record(table.DATABASE, "two devices that one user registered on two days", "no column in common", ABSENT)


# Promise: audiences-open-by-name
def test_keys_open_the_tokens_of_known_users(audiences):
    """Known are the users it guesses and those named by a waiting update or approval. Of the others only details open."""
    got = audiences.thief(audiences.at_once, audiences.at_once).work()
    known = [audiences.alice, audiences.bob, audiences.waiting, audiences.asked]
    fallen = set().union(*(user.tokens() for user in known)) | {bytes.fromhex(audiences.deleted.token)}
    queued = audiences.queued.tokens(activities=False)
    # A push that has just left may still be in the write-ahead log.
    assert fallen | queued <= got.tokens <= fallen | audiences.queued.tokens(), f"{len(got.tokens)} tokens, not {len(fallen | queued)}, by {got.how}"
    assert got.users == {audiences.waiting.name.encode(), audiences.asked.name.encode(), audiences.back_end_name.encode()}
    for user in audiences.users:
        assert user.session.encode() in got.sessions
        assert base64url_bytes(user.devices[0].answer["handleKey"]) in got.keys
    guesses = {what[:2] for what in got.confirmed if what[0] == "user"}
    assert guesses == {("user", user.name.encode()) for user in known}
    # That a token is someone's can be confirmed with the user's name, and not without it.
    shared, own = bytes.fromhex(audiences.stranger.devices[0].token), bytes.fromhex(audiences.alice.devices[0].token)
    assert {what[1:] for what in got.confirmed if what[0] == "token"} == {(b"alice", own), (b"bob", shared), (audiences.asked.name.encode(), shared)}
    assert not [what for what in got.confirmed if what[0] == "token alone"]
    session = audiences.alice.session.encode()
    assert {("session", b"alice", session), ("client", b"alice", session, b"iphone"), ("event", b"alice", session, b"event-1")} <= got.confirmed
    table.record(table.AUDIENCES, "with keys, guessing users", got.said(), EVERYTHING)


def test_keys_and_every_name_open_every_token(audiences):
    """An app's list of users is all that the broker needs besides its keys, so a thief needs no more."""
    got = audiences.thief(audiences.at_once, audiences.at_once, [user.name for user in audiences.users]).work()
    assert got.tokens == audiences.all_tokens
    assert got.refs == set().union(*(user.refs for user in audiences.users)) | {bytes.fromhex(audiences.deleted.ref)}
    table.record(table.AUDIENCES, "with keys, knowing all users", got.said(), EVERYTHING)


def test_keys_alone_open_what_a_waiting_update_names(audiences):
    """Three minutes later only the waiting approval and the update name a user."""
    got = audiences.thief(audiences.after_minutes, audiences.after_minutes, ()).work()
    assert got.tokens == audiences.asked.tokens() | audiences.waiting.tokens(), f"{len(got.tokens)} by {got.how}"
    assert got.keys and got.sessions
    table.record(table.AUDIENCES, "with keys, guessing nobody", got.said(), EVERYTHING)


def test_the_drill_finds_as_much_as_the_thief(audiences, drill):
    """On the same images: first without a name, then for each user."""
    for image in (audiences.after_minutes, audiences.after_activities):
        got, found = audiences.thief(image, image, ()).work(), drill(image)
        rows = carving.select(image.database)
        users = got.users - {audiences.back_end_name.encode()}
        assert found["audience_tokens"] == (len(rows["registration"]), len(got.tokens)) and found["users"] == (None, len(users))
        assert found["approvals"] == (len(rows["timer"]), len(rows["timer"]))
        activities = [row for row in rows["registration"] if row["session"]]
        assert found["activity_names"] == (len(activities), len(activities)) and found["sessions"][0] == len(rows["session"])
        assert bool(got.sessions) == bool(activities) and bool(got.tokens) == bool(found["sessions"][1])
    for user in audiences.users:
        found = drill(audiences.after_minutes, "--user", user.name)
        assert found["devices"] == (len(user.devices), len(user.devices)) and found["live_activities"] == (1, 1)
        assert found["approvals"] == ((1, 1) if user is audiences.asked else (0, 0))
    table.record(table.AUDIENCES, "mayfly drill at two moments and for six users: what opens", "as much", "what the thief gets from the same images")


def test_later_keys_open_no_queued_push(audiences):
    """The image with the queued push, and the keys of two hours later."""
    got = audiences.thief(audiences.at_once, audiences.after_activities, ()).work()
    assert not got.tokens and not got.users, f"{got.said()} by {got.how}"


def test_a_deleted_registration_leaves_the_disk(audiences):
    check_deleted(audiences)


def check_deleted(audiences):
    got = audiences.thief(audiences.after_minutes, audiences.at_once, [user.name for user in audiences.users]).work()
    assert audiences.alice.tokens() <= got.tokens
    assert bytes.fromhex(audiences.deleted.token) not in got.tokens, "a registration that was deleted is still on the disk"
    table.record(table.AUDIENCES, "a registration that was deleted minutes ago", "not on the disk", EVERYTHING)


def test_nothing_opens_ten_minutes_after_expiry(audiences):
    """Activities first, then devices: an image from before their expiry, all names, and the keys from after it."""
    names = [user.name for user in audiences.users]
    activities = set().union(*(user.tokens(devices=False) for user in audiences.users))
    got = audiences.thief(audiences.at_once, audiences.after_activities, names).work()
    assert not got.tokens & activities and got.tokens, f"{len(got.tokens & activities)} tokens of activities"
    assert not got.sessions, f"{got.sessions} by {got.how}"
    for image in images(audiences)[:-1]:
        got = audiences.thief(image, audiences.at_the_end, names).work()
        assert got.tokens == (audiences.later_tokens if image is audiences.after_a_day else set()), f"{got.said()} by {got.how}"
        if image is not audiences.after_a_day:
            assert nothing(got), f"{got.said()} by {got.how}"
    check_swept(audiences)
    table.record(table.AFTER_EXPIRY, "registrations, sessions and timers: images from when they lived, and every user's name", "nothing",
                 "nothing: the key no longer exists")


def check_swept(audiences):
    got = audiences.thief(audiences.at_the_end, audiences.at_once, [user.name for user in audiences.users]).work()
    assert nothing(got), f"rows that have expired are still on the disk: {got.said()}"


@pytest.mark.parametrize("protection, check", [("secure_delete", check_swept), ("truncate", check_swept), ("truncate", check_deleted)])
def test_the_checks_fail_without_their_protection(stories, protection, check):
    """The thief then finds what the protection keeps from it."""
    with table.aside(), pytest.raises(AssertionError, match="still on the disk"):
        check(stories[protection])


def test_earlier_keys_open_their_own_generation_only(audiences):
    """A kept key file opens later seals of its generation, but none of the next generation."""
    got = audiences.thief(audiences.after_a_day, audiences.at_once, [user.name for user in audiences.users]).work()
    assert got.tokens == set().union(*(user.tokens(activities=False) for user in audiences.users))
    table.record(table.EARLIER_KEYS, "registrations, a day later, knowing all users", got.said(),
                 "what was live then and what was sealed in the same generation (a day)")


def test_no_secret_is_in_any_file_or_output(audiences):
    """The log contains no hash of one either."""
    canaries = Canaries()
    for token in audiences.all_tokens | audiences.later_tokens:
        canaries.add("token", token)
    for user in (audiences.waiting, audiences.queued):
        canaries.add_subscription(user.devices[0].token)
    for user in audiences.users:
        canaries.add("JWT", user.phone.jwt[-40:])
        canaries.add("session", user.session)
        canaries.add("user", *[name for name in [user.name] if len(name) > 8])
        for device in user.devices + user.activities:
            canaries.add("handle key", base64url_bytes(device.answer["handleKey"]), device.answer["handleKey"])
            canaries.add("ref", device.ref, bytes.fromhex(device.ref))
            canaries.add("token id", base64url_bytes(device.id[4:]))
    # A registration's id is in its row, and isn't a secret there.
    rows = {form for form, name in canaries.forms.items() if name == "token id"}
    contents = set()
    for image in images(audiences):
        contents.update(*(folder.values() for folder in (image.keys, image.ledger)))
    contents.add(audiences.stage.broker.printed().encode())
    found = search(contents, canaries)
    for form in rows:
        del canaries.forms[form]
    databases = set().union(*(image.database.values() for image in images(audiences)))
    found += search(databases, canaries)
    table.record(table.OUTPUT, "secrets of audiences in any file, raw, in hex or base64", ", ".join(found) or "nothing", "nothing")
    assert not found


def test_the_log_shows_one_life_for_each_ref(audiences):
    """Entries of one user's or one phone's registrations share nothing but times."""
    log = ledger.read(audiences.stage.state).check()
    for user in audiences.users:
        for device in [*user.devices, *user.activities]:
            sealed, *rest = log.of(device.ref)
            assert sealed["op"] == "token.sealed" and set(sealed) == {"at", "op", "id", "until"}
            assert json.dumps(rest).count(device.id) == 0
    causes = {entry["cause"] for user in audiences.users for device in user.activities for entry in log.of(device.ref, "token.purged")}
    assert causes == {"expired"}
    assert [entry["cause"] for entry in log.of(audiences.deleted.ref, "token.purged")] == ["ended"]
