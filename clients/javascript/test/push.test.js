// push.js and sw.js with a browser's parts faked, and a small broker on loopback.

import assert from "node:assert/strict";
import { once } from "node:events";
import { readFile } from "node:fs/promises";
import { createServer } from "node:http";
import { after, afterEach, before, beforeEach, describe, mock, test } from "node:test";
import { FakeIndexedDB, FakeNotification, FakePushManager, FakeWorker } from "./browser.js";
import { Client, JoinCode } from "../mayfly.js";

const KEY = `B${"k".repeat(86)}`;
const OTHER_KEY = `B${"o".repeat(86)}`;
const REF = "ab".repeat(16);
const EXPIRES = "2099-01-02T03:04:05Z";
const roomidOf = (letter) => letter.repeat(43);

let push, storage, broker, client, registration, worker;

/** A broker. `answers` has a status and a body for the token calls of a room, or a promise of them. Other rooms accept. */
class FakeBroker {
  offer = { webPush: { applicationServerKey: KEY, longest: 505 } };
  answers = new Map();
  calls = [];

  static async start() {
    const broker = new FakeBroker();
    broker.server = createServer(async (request, response) => {
      const body = Buffer.concat(await request.toArray());
      const call = {
        method: request.method, path: request.url, room: request.headers.authorization?.slice("Bearer ".length),
        body: body.length ? JSON.parse(body) : undefined,
      };
      broker.calls.push(call);
      const [status, answer] = await broker.#answer(call);
      if (status === 0) return request.socket.destroy();
      const isText = typeof answer === "string";
      const type = isText ? "text/html" : status < 400 ? "application/json" : "application/problem+json";
      response.writeHead(status, { "Content-Type": type }).end(isText ? answer : JSON.stringify(answer));
    }).listen(0, "127.0.0.1");
    await once(broker.server, "listening");
    broker.url = `http://127.0.0.1:${broker.server.address().port}`;
    return broker;
  }

  #answer({ path, room }) {
    if (path === "/api/push") return [this.offer === "down" ? 0 : 200, this.offer];
    if (path === "/api/room/token") return this.answers.get(room) ?? [200, { ref: REF, expiresAt: EXPIRES }];
    return [201, { roomid: roomidOf("n"), member: "m".repeat(43), ref: REF, expiresAt: EXPIRES }];
  }

  tokenCallCount() { return this.calls.filter(({ path }) => path.endsWith("/api/room/token")).length; }

  /** The token calls since the last question, by the first letter of their room. */
  tokenCalls() {
    const calls = this.calls.filter(({ path }) => path.endsWith("/api/room/token"));
    this.calls = [];
    return calls.map(({ room }) => room[0]).sort().join("");
  }
}

const gone = [404, { code: "room_not_found", detail: "There is no such room." }];
const busy = [503, { code: "overloaded", detail: "Try again." }];

/** A kept room whose id is this letter, repeated. */
async function keep(letter, { nickname = letter.toUpperCase(), token, expiresAt = EXPIRES, of = client } = {}) {
  const room = of.room({ roomid: roomidOf(letter), client: `client-${letter}`, member: "m".repeat(43), side: 1, ref: "00".repeat(16), expiresAt });
  await push.keepRoom(room, { nickname, token });
  return room;
}

const message = (handle, more = {}) => JSON.stringify({
  web_push: 8030,
  notification: {
    title: "Chat", body: "Your chat partner is waiting", tag: handle, navigate: "https://app.example/chat/?from=push",
    data: { template: "peer_waiting", roomId: handle }, ...more,
  },
});

const keptLetters = async () => (await push.keptRooms()).map(({ credentials }) => credentials.roomid[0]).sort().join("");
const fails = (promise, wanted) => assert.rejects(promise, { name: "MayflyError", ...wanted });

/** Waits for other tasks until this is true, at most for so many. */
async function settle(isDone, tasks = 5_000) {
  while (!isDone() && tasks--) await new Promise(setImmediate);
}

const logs = ["log", "info", "warn", "error", "debug"].map((name) => mock.method(console, name, () => {}));

before(async () => {
  push = await import("../push.js");
  broker = await FakeBroker.start();
});

beforeEach(async () => {
  globalThis.indexedDB = storage = new FakeIndexedDB();
  globalThis.Notification = FakeNotification;
  Object.assign(FakeNotification, { permission: "granted", answer: "granted", asked: 0 });
  Object.assign(broker, { offer: { webPush: { applicationServerKey: KEY, longest: 505 } }, answers: new Map(), calls: [] });
  client = new Client(broker.url, { environment: "production", bundleId: "org.example.app" });
  worker = await FakeWorker.start();
  registration = worker.registration;
});

afterEach(() => { for (const log of logs) assert.equal(log.mock.callCount(), 0); });

after(() => {
  mock.restoreAll();
  broker.server.close();
});

describe("subscribe", () => {
  test("asks in the click, subscribes with the broker's key, and returns what calls take", async () => {
    FakeNotification.permission = "default";
    const done = push.subscribe(client, registration);
    assert.equal(FakeNotification.asked, 1, "asked only after something was awaited");
    const token = await done;
    assert.deepEqual(registration.pushManager.asked, [{ userVisibleOnly: true, applicationServerKey: KEY }]);
    assert.deepEqual(token, (await registration.pushManager.getSubscription()).toJSON());

    broker.calls = [];
    const room = await client.create({ code: JoinCode.random(), token });
    await client.accept({ code: JoinCode.random(), token });
    await room.replaceToken(token);
    await room.replaceToken(await registration.pushManager.getSubscription());
    const [created, accepted, ...replaced] = broker.calls.map(({ body }) => body);
    for (const sent of [created.client1_token, accepted.client2_token, replaced[0].token, replaced[1].token]) assert.deepEqual(sent, token);
    for (const body of [created, accepted, ...replaced]) assert.ok(!("environment" in body) && !("bundleId" in body));
    await room.replaceToken("a1a1");
    const { token: sent, environment, bundleId } = broker.calls.at(-1).body;
    assert.deepEqual({ sent, environment, bundleId }, { sent: "a1a1", environment: "production", bundleId: "org.example.app" });
  });

  test("asks nothing twice, and keeps a subscription with the same key", async () => {
    const first = await push.subscribe(broker.url, registration);
    assert.deepEqual(await push.subscribe(`${broker.url}/`, registration), first);
    assert.equal(registration.pushManager.asked.length, 1);
    assert.equal(FakeNotification.asked, 0);
  });

  test("subscribes anew if the broker has another key, and replaces the tokens of kept rooms", async () => {
    const old = await push.subscribe(client, registration);
    await keep("a", { token: old });
    await keep("b", { token: old });
    broker.offer = { webPush: { applicationServerKey: OTHER_KEY, previous: KEY, longest: 505 } };
    broker.calls = [];
    const token = await push.subscribe(client, registration);
    assert.notEqual(token.endpoint, old.endpoint);
    assert.equal(registration.pushManager.asked.at(-1).applicationServerKey, OTHER_KEY);
    const { body } = broker.calls.find(({ room }) => room === roomidOf("a"));
    assert.deepEqual(body, { client: "client-a", member: "m".repeat(43), token });
    assert.equal(broker.tokenCalls(), "ab");
    for (const { credentials, endpoint } of await push.keptRooms()) assert.deepEqual([credentials.ref, endpoint], [REF, token.endpoint]);
    await push.subscribe(client, registration);
    assert.equal(broker.tokenCalls(), "");
  });

  test("reports a broker without Web Push", async () => {
    for (const offer of [{}, { webPush: undefined }]) {
      broker.offer = offer;
      await fails(push.subscribe(client, registration), { kind: "invalid", code: "web_push_off" });
    }
    assert.equal(registration.pushManager.asked.length, 0);
  });

  test("reports a refused permission, and asks the broker nothing", async () => {
    for (const [permission, answer] of [["denied", "granted"], ["default", "denied"], ["default", "default"]]) {
      Object.assign(FakeNotification, { permission, answer });
      await fails(push.subscribe(client, registration), { kind: "invalid", code: "permission_denied" });
    }
    assert.deepEqual([FakeNotification.asked, broker.calls.length], [2, 0]);
    FakeNotification.permission = "granted";
    registration.pushManager.failure = new DOMException("no", "NotAllowedError");
    await fails(push.subscribe(client, registration), { code: "permission_denied" });
  });

  test("reports a browser without Web Push", async () => {
    await fails(push.subscribe(client, undefined), { kind: "invalid", code: "push_unsupported", message: /home screen/ });
    await fails(push.subscribe(client, { scope: "https://app.example/" }), { code: "push_unsupported" });
    delete globalThis.Notification;
    await fails(push.subscribe(client, registration), { code: "push_unsupported" });
  });

  test("reports a push service that can't be reached, without the browser's words", async () => {
    registration.pushManager.failure = new DOMException("failed for https://push.example.net/secret", "AbortError");
    await fails(push.subscribe(client, registration), { kind: "unreachable", code: "push_service", message: /^[^:/]*$/ });
  });

  test("reports what is no broker", async () => {
    const webPush = { applicationServerKey: KEY, longest: 505 };
    for (const offer of ["<html>", { webPush: null }, { webPush: "x" }, ...[
      { applicationServerKey: "short" }, { applicationServerKey: `${KEY}=` }, { previous: 1 }, { longest: "505" },
    ].map((change) => ({ webPush: { ...webPush, ...change } }))]) {
      broker.offer = offer;
      await fails(push.subscribe(client, registration), { kind: "foreign" });
    }
    await fails(push.subscribe("push.example.org", registration), { code: "invalid_url" });
  });
});

describe("a push", () => {
  test("shows the broker's text if nothing else is known", async () => {
    const { handle } = client.room({ roomid: roomidOf("x"), client: "c", side: 1, expiresAt: EXPIRES });
    const { title, body, tag, renotify, navigate } = await worker.push(message(handle));
    assert.deepEqual([title, body, tag, renotify, navigate], ["Chat", "Your chat partner is waiting", handle, true, undefined]);
  });

  test("shows the nickname of its room, and the text in the reader's language", async () => {
    const [ben, eve] = [await keep("b", { nickname: "Ben" }), await keep("e", { nickname: "Eve" })];
    assert.notEqual(ben.handle, eve.handle);
    await push.setTexts({ peer_waiting: { title: "Plausch", body: "wartet auf dich", icon: "/icon.png" } });
    const { title, body, icon, tag } = await worker.push(message(eve.handle));
    assert.deepEqual([title, body, icon, tag], ["Eve", "wartet auf dich", "/icon.png", eve.handle]);
    await push.forgetRoom(eve);
    assert.equal((await worker.push(message(eve.handle))).title, "Plausch");
    assert.equal((await worker.push(message(eve.handle, { data: { template: "other" } }))).title, "Chat");
  });

  test("that can't be read shows a constant text", async () => {
    const unreadable = [null, "", "{", "null", "1", "[]", "{}", '{"web_push":8030}', '{"web_push":8030,"notification":{}}', '{"notification":{"title":"x"}}'];
    for (const bytes of unreadable) {
      const { title, body, tag } = await worker.push(bytes);
      assert.deepEqual([title, body, tag], ["New notification", "Open the app to see it.", "mayfly_unreadable"], String(bytes));
    }
    assert.equal(worker.shown.length, unreadable.length);
    await push.setTexts({ unreadable: { title: "Neues", body: "Öffne die App." } });
    assert.equal((await worker.push("{")).title, "Neues");
  });

  test("is shown without a storage, and with options that the browser refuses", async () => {
    const { handle } = await keep("a");
    storage.isBroken = true;
    assert.equal((await worker.push(message(handle))).title, "Chat");
    [storage.isBroken, storage.isSilent] = [false, true];
    mock.timers.enable({ apis: ["setTimeout"] });
    const waiting = worker.push(message(handle, { title: "Slow" }));
    mock.timers.tick(3_000);
    // The renewal waits for the silent storage, so the push event doesn't end.
    await Promise.race([waiting, new Promise(setImmediate)]);
    mock.timers.reset();
    assert.equal(worker.shown.at(-1).title, "Slow");
    storage.isSilent = false;
    assert.equal((await worker.push(message(handle, { vibrate: "no" }))).title, "New notification");
    assert.equal((await worker.push(message(handle, { tag: undefined }))).body, "Your chat partner is waiting");
  });

  test("that Safari has parsed is shown with a page to open", async () => {
    const { handle } = await keep("s", { nickname: "Sam" });
    const { notification } = JSON.parse(message(handle));
    await worker.fire("push", { data: null, notification });
    const [{ title, body, tag, navigate }] = worker.shown;
    assert.deepEqual([title, body, tag], ["Sam", "Your chat partner is waiting", handle]);
    assert.equal(navigate, `https://app.example/chat/?from=push#mayfly-room=${handle}`);
  });

  test("of another sender stays the app's", async () => {
    const own = await FakeWorker.start({ before: (scope) => scope.addEventListener("push", (event) => event.stopImmediatePropagation()) });
    assert.equal(await own.fire("push", { data: null }), 0);
    assert.deepEqual(own.shown, []);
  });
});

describe("a tapped notification", () => {
  let handle, notification;

  beforeEach(async () => {
    ({ handle } = await keep("a", { nickname: "Ann" }));
    notification = await worker.push(message(handle));
  });

  test("focuses the app's open window, which opens the room", async () => {
    const elsewhere = worker.addWindow("https://app.example/other/");
    const page = worker.addWindow("https://app.example/chat/list");
    await worker.click(notification);
    assert.ok(notification.isClosed && page.isFocused && !elsewhere.isFocused);
    assert.deepEqual([page.messages, elsewhere.messages, worker.opened], [[{ type: "mayfly-room", handle }], [], []]);
    page.focus = async () => { throw new DOMException("no", "InvalidAccessError"); };
    await worker.click(notification);
    assert.equal(page.messages.length, 2);
  });

  test("opens a window at the room, of the app's own origin only", async () => {
    await worker.click(notification);
    assert.deepEqual(worker.opened, [`https://app.example/chat/?from=push#mayfly-room=${handle}`]);
    for (const navigate of ["https://evil.example/", "javascript:alert(1)", "https://", undefined]) {
      await worker.click(await worker.push(message(handle, { navigate })));
      assert.equal(worker.opened.at(-1), `https://app.example/chat/#mayfly-room=${handle}`, navigate);
    }
    await worker.click(await worker.push("{"));
    assert.equal(worker.opened.at(-1), "https://app.example/chat/");
  });

  test("of another sender stays the app's", async () => {
    const other = new FakeNotification("x", { data: {} });
    assert.equal(await worker.click(other), 0);
    assert.ok(!other.isClosed);
  });

  test("reaches the page by a message and by its address", async () => {
    const container = new EventTarget();
    Object.defineProperty(globalThis, "navigator", { value: { serviceWorker: container }, configurable: true });
    const page = new EventTarget();
    const replaced = [];
    Object.assign(globalThis, {
      addEventListener: page.addEventListener.bind(page), location: { hash: `#mayfly-room=${handle}`, pathname: "/chat/", search: "?from=push" },
      history: { state: 7, replaceState: (...words) => replaced.push(words) },
    });
    const opened = [];
    push.onOpenRoom((...room) => opened.push(room));
    const next = async () => {
      await settle(() => opened.length, 100);
      return opened.shift();
    };
    const [first, kept] = await next();
    assert.deepEqual([first, kept.nickname], [handle, "Ann"]);
    assert.equal(client.room(kept.credentials).handle, handle);
    assert.deepEqual(replaced, [[7, "", "/chat/?from=push"]]);
    const unknown = "A".repeat(22);
    container.dispatchEvent(new MessageEvent("message", { data: { type: "mayfly-room", handle: unknown } }));
    assert.deepEqual(await next(), [unknown, undefined]);
    globalThis.location.hash = `#mayfly-room=${unknown}`;
    page.dispatchEvent(new Event("hashchange"));
    assert.equal((await next())[0], unknown);
    for (const data of [null, { type: "other", handle }]) container.dispatchEvent(new MessageEvent("message", { data }));
    globalThis.location.hash = "#mayfly-room=no";
    page.dispatchEvent(new Event("hashchange"));
    assert.equal(await next(), undefined);
  });
});

describe("a changed subscription", () => {
  let old;

  beforeEach(async () => {
    old = await push.subscribe(client, registration);
    for (const letter of "abc") await keep(letter, { token: old });
    broker.calls = [];
  });

  test("replaces the tokens of all rooms of its broker", async () => {
    await keep("z", { of: new Client(`${broker.url}/other`, { environment: "production" }) });
    registration.pushManager.drop();
    broker.offer.webPush.applicationServerKey = OTHER_KEY;
    await worker.fire("pushsubscriptionchange");
    const { endpoint } = await registration.pushManager.getSubscription();
    assert.deepEqual(registration.pushManager.asked.at(-1), { userVisibleOnly: true, applicationServerKey: OTHER_KEY });
    for (const { path, body } of broker.calls) if (path === "/api/room/token") assert.equal(body.token.endpoint, endpoint);
    assert.equal(broker.tokenCalls(), "abc");
    const endpoints = new Map((await push.keptRooms()).map((room) => [room.credentials.roomid[0], room.endpoint]));
    assert.deepEqual(Object.fromEntries(endpoints), { a: endpoint, b: endpoint, c: endpoint, z: undefined });
  });

  test("keeps one that the browser has made", async () => {
    const { endpoint } = registration.pushManager.replace(KEY);
    await worker.fire("pushsubscriptionchange");
    assert.equal(broker.calls.find(({ body }) => body).body.token.endpoint, endpoint);
    assert.equal(broker.tokenCalls(), "abc");
  });

  test("forgets ended rooms, keeps failed ones and tries them again", async () => {
    broker.answers = new Map([[roomidOf("a"), gone], [roomidOf("b"), busy], [roomidOf("c"), [404, "<h1>Not found</h1>"]]]);
    registration.pushManager.replace(KEY);
    await worker.fire("pushsubscriptionchange");
    assert.equal(broker.tokenCalls(), "abc");
    assert.equal(await keptLetters(), "bc");
    // A later push tries again, and then a start of the page.
    broker.answers.delete(roomidOf("b"));
    await worker.push("{");
    assert.equal(broker.tokenCalls(), "bc");
    broker.answers.clear();
    await push.subscribe(client, registration);
    assert.equal(broker.tokenCalls(), "c");
    await worker.push("{");
    assert.equal(broker.tokenCalls(), "");
    assert.equal(await keptLetters(), "bc");
  });

  test("survives a broker that is down or has switched Web Push off", async () => {
    registration.pushManager.drop();
    for (const offer of ["down", "<html>", {}]) {
      broker.offer = offer;
      await worker.fire("pushsubscriptionchange");
      assert.equal(broker.calls.at(-1).path, "/api/push");
    }
    assert.equal(await registration.pushManager.getSubscription(), null);
    assert.equal(await keptLetters(), "abc");
    broker.offer = { webPush: { applicationServerKey: KEY, longest: 505 } };
    await push.subscribe(client, registration);
    assert.equal(broker.tokenCalls(), "abc");
  });

  test("a room forgotten meanwhile doesn't come back, and expired ones go", async () => {
    const room = await keep("a", { token: old });
    let answer;
    broker.answers.set(roomidOf("a"), new Promise((resolve) => { answer = resolve; }));
    registration.pushManager.replace(KEY);
    const done = worker.fire("pushsubscriptionchange");
    await settle(() => broker.tokenCallCount() === 3);
    await push.forgetRoom(room);
    answer([200, { ref: REF, expiresAt: EXPIRES }]);
    await done;
    assert.equal(await keptLetters(), "bc");
    const ago = (hours) => new Date(Date.now() - 3_600_000 * hours).toISOString();
    await keep("b", { expiresAt: ago(25) });
    await keep("c", { expiresAt: ago(23) });
    assert.equal(await keptLetters(), "c");
    assert.equal(storage.stores.get("rooms").rows.size, 1);
  });
});

test("the program of README.md gets a push", async () => {
  const readme = await readFile(new URL("../README.md", import.meta.url), "utf8");
  const [program] = [...readme.matchAll(/^```js\n(.*?)^```/gms)].map(([, code]) => code).filter((code) => code.includes("push.js"));
  const container = Object.assign(new EventTarget(), { register: async (url) => { assert.equal(url, "sw.js"); }, ready: Promise.resolve(registration) });
  Object.defineProperty(globalThis, "navigator", { value: { serviceWorker: container }, configurable: true });
  const [button, shown, entered] = [{}, [], []];
  const page = new EventTarget();
  Object.assign(globalThis, { addEventListener: page.addEventListener.bind(page), location: { hash: "" } });
  globalThis.names = { button, show: (text) => shown.push(text), enter: (room) => entered.push(room) };
  const url = (name) => new URL(`../${name}`, import.meta.url).href;
  const code = program.replace("https://push.example.org", broker.url).replace("./mayfly.js", url("mayfly.js")).replace("./push.js", url("push.js"));
  await import(`data:text/javascript,${encodeURIComponent(`const { button, show, enter } = globalThis.names;\n${code}`)}`);
  assert.equal(registration.pushManager.made, 1, "the start subscribes where permission was granted");
  await button.onclick();
  assert.match(shown[0], /^[0-9A-Z]{5}-[0-9A-Z]{5}$/);
  const [{ handle, endpoint }] = await push.keptRooms();
  assert.equal(endpoint, (await registration.pushManager.getSubscription()).endpoint);
  const { title, body } = await worker.push(message(handle));
  assert.deepEqual([title, body], ["Ben", "wartet auf dich"]);
  container.dispatchEvent(new MessageEvent("message", { data: { type: "mayfly-room", handle } }));
  await settle(() => entered.length);
  assert.equal(entered[0].handle, handle);
});
