"""Web Push at several nodes on PostgreSQL: no node ends a message unsent that another one could send."""

import hashlib
import random
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest

from certificates import Certificate
from mayfly import Client, new_client, new_code
from nodes import Deployment
from processes import eventually, mayfly
from web_push_service import Subscriber, WebPushService, check_vapid, make_vapid_key

CONTACT, APP = "mailto:ops@chat.example", "https://app.example"


class PushDeployment(Deployment):
    """Nodes with settings for Web Push, and its service."""

    def __init__(self, names):
        folder = Path(tempfile.mkdtemp(prefix="mayfly-push-"))
        certificate = Certificate(folder)
        self.service, self.hosts = WebPushService(certificate), folder / "hosts"
        self.hosts.write_text(f"localhost:{self.service.port} private ca {certificate.path}\n")
        self.key, self.new_key = folder / "vapid.pem", folder / "new.pem"
        self.public, number = make_vapid_key(self.key)
        self.new_public, _ = make_vapid_key(self.new_key, besides=number)
        super().__init__(names)
        for node in self.nodes.values():
            self.give(node, self.key)

    def settings(self, key, previous=None):
        return {"vapid-key": key, "vapid-previous-key": previous, "vapid-contact": CONTACT, "web-origin": APP, "web-push-hosts": self.hosts}

    def give(self, node, key, previous=None):
        node.options |= self.settings(key, previous)

    def take(self, node):
        node.options |= dict.fromkeys(self.settings(None))

    def push(self, word, key=None, previous=None):
        flags = [part for name, value in self.settings(key, previous).items() if key and value for part in (f"--{name}", value)]
        return mayfly("push", word, "--state", self.nodes["a"].folder, "--database", self.schema.uri, *flags)

    def restart(self, *names):
        for name in names:
            self[name].stop()
            self[name].start()

    def subscribable(self, name):
        answer = Client(self[name].port).send("GET", "/api/push").expect(200).json
        return answer.get("webPush", {}).get("applicationServerKey")

    def __exit__(self, *more):
        super().__exit__(*more)
        self.service.close()


@pytest.fixture
def pushes():
    with PushDeployment("abc") as deployment:
        deployment.simulator.start()
        yield deployment


def ring(made_at, knocked_at, browser):
    """A room whose creator is a browser, made at one node. Its joiner waits at another one."""
    code, joiner = new_code(), new_client()
    made, knocked = Client(made_at.port), Client(knocked_at.port)
    room = made.create(code, token=browser.json()).expect(201).json["roomid"]
    accepted = made.accept(code, joiner).expect(200).json
    knocked.presence(room, joiner, member=accepted["member"]).expect(202)


class Rings(threading.Thread):
    """Rings browsers at random nodes until its end. Each knock that was acknowledged must become a message."""

    def __init__(self, pushes):
        super().__init__(daemon=True)
        self.pushes, self.rung, self.refused, self.ended = pushes, [], [], threading.Event()

    def run(self):
        # A host gets 60 messages a minute.
        while not self.ended.wait(0.5) and len(self.rung) < 40:
            made_at, knocked_at = random.sample([node for node in self.pushes.nodes.values() if node.is_serving] * 2, 2)
            browser = Subscriber(self.pushes.service)
            try:
                ring(made_at, knocked_at, browser)
            except OSError:
                continue  # That node was stopping.
            except AssertionError as refused:
                if "got 503" not in str(refused):
                    self.refused.append(str(refused))
                continue
            self.rung.append(browser)

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.join(30)
        eventually(lambda: all(browser.messages() for browser in self.rung), 20, what="a message for each knock")
        assert len(self.rung) >= 5 and not self.refused, self.refused


def delivered(browser, public):
    message = eventually(lambda: browser.messages() and browser.messages()[0], 10, what="the message")
    check_vapid(message, f"https://localhost:{browser.service.port}", public, CONTACT)


# Promise: web-nodes-have-the-key
def test_all_nodes_have_the_key_before_an_address_is_taken(pushes):
    a, b, c = pushes.nodes.values()
    pushes.take(c)
    for node in (a, b, c):
        node.start()
    refused = pushes.push("enable", pushes.key)
    assert refused.returncode == 1 and "without it: c." in refused.stderr, refused
    assert pushes.subscribable("a") is None
    pushes.give(c, pushes.key)
    pushes.restart("c")
    # One joins without it between the first look at the nodes and the second. Nothing stays recorded.
    pushes.schema.run("""CREATE FUNCTION join_late() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN UPDATE node SET value = '' WHERE name = 'vapid.key of c'; RETURN NULL; END $$""")
    pushes.schema.run("""CREATE TRIGGER join_late AFTER INSERT OR UPDATE ON node
        FOR EACH ROW WHEN (NEW.name = 'vapid.key') EXECUTE FUNCTION join_late()""")
    refused = pushes.push("enable", pushes.key)
    assert refused.returncode == 1 and "without it: c." in refused.stderr, refused
    assert pushes.schema.run("SELECT value FROM node WHERE name = 'vapid.key'") in ([], [(b"",)])
    pushes.schema.run("DROP TRIGGER join_late ON node")
    pushes.restart("c")
    enabled = pushes.push("enable", pushes.key)
    assert enabled.returncode == 0, enabled
    # Nodes start one after the other. One that doesn't take subscriptions yet sends to those of others.
    pushes.restart("a")
    assert pushes.subscribable("a") == pushes.public and pushes.subscribable("b") is None
    for node in (b, c):
        browser = Subscriber(pushes.service)
        ring(a, node, browser)
        delivered(browser, pushes.public)


def test_keys_that_could_not_be_taken_back_are_reported(pushes):
    """A node without the key joins meanwhile, as above. Then the database refuses to restore what was recorded before."""
    pushes["a"].start()
    pushes.schema.run("""CREATE FUNCTION join_late() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        IF NEW.value = '' THEN RAISE EXCEPTION 'refused'; END IF;
        UPDATE node SET value = '' WHERE name = 'vapid.key of a'; RETURN NULL; END $$""")
    pushes.schema.run("""CREATE TRIGGER join_late AFTER INSERT OR UPDATE ON node
        FOR EACH ROW WHEN (NEW.name = 'vapid.key') EXECUTE FUNCTION join_late()""")
    refused = pushes.push("enable", pushes.key)
    assert refused.returncode == 1 and "without it: a." in refused.stderr and "could not be restored" in refused.stderr, refused


def enable_at_once(pushes, keys):
    """Each has read that nothing is recorded before any of them records its key. The nodes have both keys."""
    pushes.give(pushes["a"], pushes.new_key, pushes.key)
    pushes["a"].start()
    pushes["a"].stop()

    def waiting():
        return pushes.schema.run(
            "SELECT count(*) FROM pg_locks WHERE relation = (SELECT oid FROM pg_class WHERE relname = 'node' AND relnamespace = %s::regnamespace) "
            "AND NOT granted", pushes.schema.name)[0][0]
    with psycopg.connect(pushes.schema.uri) as connection, ThreadPoolExecutor() as both:
        connection.execute("LOCK TABLE node IN SHARE MODE")  # Reads pass, writes wait.
        ends = [both.submit(pushes.push, "enable", key) for key in keys]
        eventually(lambda: waiting() == 2, 30, what="two that wait to record their keys")
        connection.rollback()
        return [end.result() for end in ends]


def test_one_of_two_who_enable_different_keys_at_a_time_is_refused(pushes):
    ends = enable_at_once(pushes, [pushes.key, pushes.new_key])
    refused = [end for end in ends if end.returncode]
    assert len(refused) == 1 and refused[0].returncode == 1, ends
    assert "changed the recorded keys at the same time" in refused[0].stderr, refused
    # The key of the one that was not refused is in force.
    recorded = [hashlib.sha256(key.encode()).digest() for key in (pushes.public, pushes.new_public)]
    assert pushes.schema.run("SELECT value FROM node WHERE name = 'vapid.key'") == [(recorded[ends.index(refused[0]) ^ 1],)]


def test_two_may_enable_the_same_key_at_a_time(pushes):
    ends = enable_at_once(pushes, [pushes.key] * 2)
    assert [end.returncode for end in ends] == [0, 0], ends
    assert pushes.schema.run("SELECT value FROM node WHERE name = 'vapid.key'") == [(hashlib.sha256(pushes.public.encode()).digest(),)]


# Promise: web-nodes-have-the-key
def test_a_node_without_the_key_does_not_serve_beside_others(pushes):
    a, b, c = pushes.nodes.values()
    a.start()
    b.start()
    assert pushes.push("enable", pushes.key).returncode == 0
    pushes.restart("a", "b")
    for other, told in [(lambda: pushes.give(c, pushes.new_key), "is not the key that"), (lambda: pushes.take(c), "run `mayfly push disable`")]:
        other()
        c.start(wait=False)
        assert c.child.wait(60) not in (0, None)
        assert "--vapid-key" in c.printed() and told in c.printed(), c.printed()
    browser = Subscriber(pushes.service)
    ring(a, b, browser)
    delivered(browser, pushes.public)
    # Switched off, it may start, and nobody takes a subscription from the next start on.
    assert pushes.push("disable").returncode == 0
    c.start()
    pushes.restart("a")
    assert pushes.subscribable("a") is None and pushes.subscribable("c") is None


# Promise: web-key-kept
def test_a_key_is_replaced_at_one_node_after_the_other(pushes):
    a, b, c = pushes.nodes.values()
    for node in (a, b, c):
        node.start()
    assert pushes.push("enable", pushes.key).returncode == 0
    pushes.restart("a", "b", "c")
    refused = pushes.push("enable", pushes.new_key, pushes.key)
    assert refused.returncode == 1 and "without it: a, b, c." in refused.stderr, refused
    for node in (a, b, c):
        pushes.give(node, pushes.new_key, pushes.key)
    with Rings(pushes):
        replace(pushes)
    # The key before may not be missing either, until that is recorded.
    pushes.give(c, pushes.new_key)
    c.stop()
    c.start(wait=False)
    assert c.child.wait(60) not in (0, None)
    assert "is missing: set it as before" in c.printed(), c.printed()
    dropped = pushes.push("enable", pushes.new_key)
    assert dropped.returncode == 0 and "the key before get no push from the next start on" in dropped.stdout, dropped
    c.start()


def replace(pushes):
    a, b, _ = pushes.nodes.values()
    pushes.restart("a")
    # It hands out the key before, with which the others can send.
    assert pushes.subscribable("a") == pushes.public
    early = Subscriber(pushes.service)
    ring(a, b, early)
    delivered(early, pushes.public)
    pushes.restart("b", "c")
    assert pushes.push("enable", pushes.new_key, pushes.key).returncode == 0
    pushes.restart("a")
    assert pushes.subscribable("a") == pushes.new_public
    late = Subscriber(pushes.service)
    ring(a, b, late)
    delivered(late, pushes.new_public)
