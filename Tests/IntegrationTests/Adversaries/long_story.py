"""One broker's days: quiet at first, then busy, rooms in every stage of a life, and images of its disk at the moments that matter.

Times are of the stage's clock. `begin` is when the rooms of interest were made, just after an epoch began.
"""

from load import Load
from processes import REPOSITORY, eventually
from stage import DAY, EPOCH, Stage
from truth import Phone, Truth, six_digits

# Client ids that can be guessed. The documentation advises against them.
WORDS = ("alice", "bob", "carol", "dora", "erin", "someone else")


class LongStory:
    def __init__(self):
        # With the log's timing as it is built in: batches of 64 each hour, and at midnight.
        self.stage = Stage(files=True, push=True, settings=lambda _: {"policy": REPOSITORY / "policies/rooms.json"})
        try:
            self.truth = Truth(self.stage)
            self.client = self.stage.client()
            self._quiet_evening()
            self.stage.pass_to((self.stage.epoch + 1) * EPOCH + 20)
            self.load = Load(self.truth)
            try:
                self._busy_days()
            finally:
                self.load.end()
            self._next_days()
        except BaseException:
            print(self.stage.broker.printed())
            self.close()
            raise

    def close(self):
        self.stage.close()

    # Quiet.

    def _quiet_evening(self):
        """Four rooms, one after the other, one phone in two of them. There is no other load."""
        stage, truth, client = self.stage, self.truth, self.client
        often = Phone()
        self.quiet = []
        for number in range(4):
            room = truth.pair(
                client, creator=often if number == 0 else Phone(), joiner=often if number == 2 else Phone(), life=20_000 + 1_000 * number)
            refs, tokens = dict(room.refs), {slot: phone.token.hex() for slot, phone in room.phones.items()}
            knocked = (1, 2, 2, 1)[number]
            assert truth.knock(client, room, by=3 - knocked) == "queued"
            eventually(lambda: stage.simulator.pushes(tokens[knocked]), what="the push")
            stage.wait_for_pushes()
            stage.pass_(65)
            if number % 2:
                truth.close(client, room)
                stage.pass_(65)
            self.quiet.append((room, refs, tokens, knocked))
        stage.pass_(130)
        self.quiet_image = stage.image()
        self.quiet_pushes = stage.simulator.pushes()

    # Busy.

    def _image(self, seconds):
        """The disk so long after `begin`. The last minute was quiet, so that the write-ahead log has been emptied."""
        with self.load.resting():
            self.stage.pass_to(self.begin + seconds - 60)
            self.stage.settle()
            return self.stage.image()

    def _busy_days(self):
        stage, truth, client, load = self.stage, self.truth, self.client, self.load
        self._let_them_knock(80)
        with load.resting():
            # Their pushes have left the disk, and the next rooms are made just after an epoch begins.
            stage.wait_for_pushes()
            stage.settle()
            stage.pass_to((stage.epoch + 1) * EPOCH + 20)
        self.begin = stage.now
        self._make_rooms()
        load.done = 0
        eventually(lambda: load.done > 60 or load.failure, 30, what="some load")
        self.at_once = stage.image()

        self.after_a_minute = self._image(80)
        self.after_retries = self._image(190)
        self._let_them_knock(30)
        self.later = truth.pair(client, life=5 * DAY)
        self.after_a_room = self._image(self.short.expires - self.begin + 600)
        truth.withdraw(client, self.later, 1)
        self.after_codes = self._image(1_800 + 600)

    def _let_them_knock(self, actions):
        """Waits until the load has done so many things, some of them knocks."""
        load = self.load
        load.done, load.knocks = 0, True
        eventually(lambda: load.done > actions or load.failure, 30, what="some load")
        load.knocks = False

    def _make_rooms(self):
        stage, truth, client = self.stage, self.truth, self.client
        # Its token has a length of its own, in case lengths reveal something.
        long = Phone(bytes.fromhex("5a" * 4) + Phone().token * 3)
        shared = Phone.browser(stage.push.subscribe())
        self.accepted = [
            truth.pair(client, code=six_digits(), names=(None, "bob"), life=5 * DAY),
            truth.pair(client, creator=long, code=six_digits(), life=5 * DAY),
            truth.pair(client, joiner=long, code=six_digits(), names=("dora", None), life=5 * DAY)]
        self.pending = [
            truth.create(client, code=six_digits(), name="alice", life=DAY, joinExpiresInSeconds=1_800),
            truth.create(client, shared, code=six_digits(), life=DAY, joinExpiresInSeconds=1_800),
            truth.create(client, shared, code=six_digits(), life=DAY, joinExpiresInSeconds=1_800)]
        self.pending_long = [
            truth.create(client, long, name="alice", life=DAY, joinExpiresInSeconds=1_800) for _ in range(2)]
        self.replaced = truth.pair(client, life=5 * DAY)
        truth.replace(client, self.replaced, 1)
        self.withdrawn = truth.pair(client, life=5 * DAY)
        truth.withdraw(client, self.withdrawn, 2)
        self.closed = truth.pair(client, life=5 * DAY)
        truth.close(client, self.closed)
        self.short = truth.pair(client, names=(None, "erin"), life=600)
        self.member_room = truth.pair(client, names=(None, "carol"), life=5 * DAY)
        self.knocked = truth.pair(client, Phone(), Phone(), life=5 * DAY)
        stage.simulator.fault(always=[{"token": self.knocked.phones[2].token.hex(), "silent": True}])
        assert truth.knock(client, self.knocked, by=1) == "queued"

    @property
    def named(self):
        """The rooms of interest."""
        return [*self.accepted, *self.pending, *self.pending_long, self.replaced, self.withdrawn, self.closed, self.short,
                self.member_room, self.knocked]

    # Days later.

    def _next_days(self):
        stage, truth, client = self.stage, self.truth, self.client
        stage.pass_(DAY, step=DAY / 2)
        stage.settle_log()
        # A new generation of keys seals these.
        self.next_day = [
            truth.pair(client, code=six_digits(), life=4 * DAY),
            truth.create(client, code=six_digits(), life=4 * DAY, joinExpiresInSeconds=3_600)]
        self.after_a_day = stage.image()
        stage.pass_(2 * DAY, step=DAY)
        stage.settle_log()
        self.after_three_days = stage.image()
