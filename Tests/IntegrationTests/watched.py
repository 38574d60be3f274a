"""A broker whose log is cosigned by witnesses of the tests' own."""

import base64

from nacl.signing import SigningKey

import ledger
from mayfly import Client, new_token
from processes import ORIGIN, Broker, State, eventually, mayfly, quiet_rooms
from witness import LOG_KEY, Witness, cosigners, key_id, policy, signature_line


class Watched:
    """A state folder, its broker (not started) and witnesses that know its log."""

    def __init__(self, count=1, quorum="w0", *lines, mode=None, **broker):
        self.state = State()
        self.witnesses = []
        for number in range(count):
            self.add_witness(f"witness.test/{number}")
        self.file = policy(self.state.prints / "witnesses", self.witnesses, quorum, *lines, logs=[self.state.vkey])
        self.broker = Broker(self.state, policy=quiet_rooms(self.state), witness_policy=self.file, witness_failure=mode, **broker)

    def add_witness(self, name):
        self.witnesses.append(Witness(self.state.prints / f"witness-{len(self.witnesses)}", name, [self.state.vkey]))
        return self.witnesses[-1]

    def __enter__(self):
        for witness in self.witnesses:
            witness.start()
        return self

    def __exit__(self, *_):
        self.broker.kill()
        for witness in self.witnesses:
            witness.stop()
        self.state.remove()

    def client(self):
        return Client(self.broker.port)

    def note(self):
        try:
            return (self.state / "ledger/checkpoint").read_bytes()
        except FileNotFoundError:
            return None

    def size(self):
        note = self.note()
        return -1 if note is None else ledger.Checkpoint(note, self.state.vkey).size

    def cosigners(self):
        return cosigners(self.note(), self.witnesses)

    def committed(self):
        with self.state.database() as database:
            return database.execute("SELECT size, checkpoint FROM log").fetchone()

    def grows(self):
        """Makes a room and waits until its seal is published; returns its ref."""
        client = self.client()
        ref = client.create(token=new_token()).expect(201).json["ref"]
        client.close()
        eventually(lambda: self.note() and ledger.read(self.state).of(ref), 30, what="the seal in the ledger")
        return ref

    def verify(self, *more, demand=None):
        return mayfly("audit", "verify", self.state / "ledger", "--key", self.state.vkey,
                      "--policy", demand or self.file, *more)

    def lines(self, word):
        return [line for line in self.broker.printed().splitlines() if word in line]


def log_signature(state, text):
    seed = base64.b64decode((state / "keys/ledger.key").read_text().splitlines()[2])
    key = SigningKey(seed)
    return signature_line(ORIGIN, key_id(ORIGIN, LOG_KEY, bytes(key.verify_key)), key.sign(text.encode()).signature)


def head(state, size, root):
    """A checkpoint of this log, signed with its key. An operator can always make one."""
    text = f"{ORIGIN}\n{size}\n{base64.b64encode(root).decode()}\n"
    return f"{text}\n{log_signature(state, text)}"
