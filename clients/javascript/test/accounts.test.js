import assert from "node:assert/strict";
import { createHmac, randomBytes } from "node:crypto";
import { once } from "node:events";
import { readFile } from "node:fs/promises";
import { createServer } from "node:http";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { inspect } from "node:util";
import { Accounts, Registration } from "../accounts.js";
import { Client, MayflyError } from "../mayfly.js";
import { Broker, eventually } from "./broker.js";

const newToken = () => randomBytes(32).toString("hex");
const fails = (promise, wanted) => assert.rejects(promise, { name: "MayflyError", ...wanted });
let broker, client, backend, backendJWT, users = 0;

before(async () => {
  broker = await Broker.start({ users: true });
  client = new Client(broker.url, { environment: "sandbox" });
  backendJWT = await broker.jwt("back-end", "--scope", "broker.notify");
  backend = new Accounts(client, () => backendJWT);
});
after(() => broker.stop());

/** A user of their own for each test. */
async function newUser() {
  const user = `user-${++users}`;
  const jwt = await broker.jwt(user);
  return { user, jwt, accounts: new Accounts(client, async () => jwt) };
}

const pushed = (token, isRight = () => true) =>
  eventually(async () => (await broker.pushes(token)).map(({ payload }) => payload).find(isRight), "the push");

/** The next news of a type. */
async function heard(feed, type) {
  for (;;) {
    const { value, done } = await feed.next();
    assert.ok(!done, `the feed ended before ${type}`);
    if (value.type === type) return value;
  }
}

test("an approval, from the request to its answer on another device", async () => {
  const { user, accounts } = await newUser();
  const [first, second, session] = [newToken(), newToken(), "Sitzung/ü 1"];
  const phone = await accounts.registerDevice(first);
  const tablet = await accounts.registerDevice(second);
  assert.equal((await accounts.registerDevice(first)).id, phone.id);
  const activity = await accounts.registerActivity(newToken(), { activityId: "a", sessionId: session });
  const moved = newToken();
  const status = await accounts.status();
  assert.equal(status.hasDevice, true);
  assert.deepEqual(status.activities.map(({ activityId, sessionId }) => [activityId, sessionId]), [["a", session]]);
  assert.ok(status.activities[0].registeredAt <= Date.now() + 1000);

  const feed = accounts.follow();
  assert.ok((await heard(feed, "connected")).until > Date.now());
  const eventId = "event-1";
  const asked = await backend.report(session, { type: "approval_request", data: { requestId: "own/id" } }, { user, eventId });
  assert.deepEqual({ ...asked.pushes, isRepeated: asked.isRepeated }, { queued: 3, throttled: 0, skipped: 0, isRepeated: false });
  assert.ok(asked.expiresAt > Date.now());
  assert.equal((await backend.report(session, { type: "approval_request" }, { user, eventId })).isRepeated, true);
  assert.equal((await heard(feed, "approval_request")).sessionId, session);

  const push = await pushed(first, ({ type }) => type === "approval");
  assert.equal(push.sessionId, phone.handle("session", session));
  assert.equal(phone.name("session", push.sessionId, ["other", session]), session);
  assert.equal(tablet.name("session", push.sessionId, [session]), undefined);

  assert.equal((await accounts.approval(asked.requestId)).status, "pending");
  assert.equal(await accounts.respond("own/id", false, { device: first }), true);
  assert.equal(await accounts.respond("own/id", true), false);
  const news = await heard(feed, "approval_response");
  assert.deepEqual([news.approved, news.requestId], [false, asked.requestId]);
  assert.deepEqual(
    [await backend.approval("own/id")].map(({ requestId, sessionId, status }) => [requestId, sessionId, status]), [["own/id", session, "denied"]]);
  await pushed(second, ({ type }) => type === "clear_approval");

  assert.equal((await accounts.registerActivity(moved, { activityId: "a", sessionId: session })).id === activity.id, false);
  assert.ok(await accounts.clearSession(session) >= 2);
  feed.leave();
  assert.deepEqual(await feed.next(), { value: undefined, done: true });
  await accounts.deleteToken(phone);
  await accounts.deleteToken(tablet.id);
  await fails(accounts.deleteToken(phone), { kind: "gone", code: "token_not_found", status: 404 });
  assert.equal((await accounts.status()).hasDevice, false);
});

test("progress, states, a withdrawal and a claim come over the socket", async () => {
  const { user, accounts } = await newUser();
  const token = newToken();
  await accounts.registerDevice(token);
  const feed = accounts.follow();
  feed.claim("s", { device: "phone", token }); // Before it is connected.
  await heard(feed, "connected");
  await backend.report("s", { type: "progress_update", data: { elapsedSeconds: 30, todoProgress: { completed: 1, total: 3 } } }, { user });
  assert.deepEqual(
    await heard(feed, "progress_update"), { type: "progress_update", sessionId: "s", elapsedSeconds: 30, todoProgress: { completed: 1, total: 3 } });
  await accounts.report("s", { type: "state_change", data: { newState: "idle", previousState: "processing" } });
  assert.deepEqual(await heard(feed, "state_change"), { type: "state_change", sessionId: "s", previousState: "processing", newState: "idle" });
  const { requestId } = await backend.report("s", { type: "approval_request" }, { user });
  assert.equal(await accounts.clearApproval(requestId, { except: token }), 0);
  assert.equal(await backend.clearApproval(requestId), 1);
  assert.equal((await heard(feed, "approval_timeout")).isWithdrawn, true);
  assert.equal((await accounts.approval(requestId)).status, "withdrawn");

  const desktop = accounts.follow();
  await heard(desktop, "connected");
  desktop.claim("s", { device: "desktop", type: "desktop" });
  assert.equal((await pushed(token, ({ type }) => type === "session_handoff")).handedOffTo, "desktop");
  desktop.claim("s", { device: "desktop", user: "somebody-else" });
  assert.equal((await heard(desktop, "claim_refused")).error.code, "another_user");
  for (const one of [feed, desktop]) one.leave();
});

test("the feed comes back after a broker that died, with a new JWT", async () => {
  const { user, jwt } = await newUser();
  let asked = 0;
  const accounts = new Accounts(client, () => {
    if (++asked === 2) throw new Error("no network at the login");
    return jwt;
  });
  const feed = accounts.follow();
  await heard(feed, "connected");
  await broker.kill();
  await heard(feed, "disconnected");
  await broker.run();
  await heard(feed, "connected");
  assert.ok(asked >= 3);
  await backend.report("s", { type: "state_change", data: { newState: "idle" } }, { user });
  await heard(feed, "state_change");
  await feed.return();
});

test("a printer's run", async () => {
  const { accounts } = await newUser();
  const [token, printer] = [newToken(), "p1s/ü"];
  const device = await accounts.registerMonitor(token, { printer });
  await accounts.updateMonitor(device, { onPaused: false });
  const [{ id, settings }] = await backend.monitors(printer);
  assert.equal(id, device.id);
  assert.deepEqual(settings, { notificationsEnabled: true, onStart: true, onComplete: true, onFailed: true, onPaused: false, onMilestone: true });

  const start = await backend.reportStatus(printer, { from: "idle", to: "running" }, { eventId: "e" });
  assert.deepEqual(start, { event: "print_started", pushes: { queued: 1, throttled: 0, skipped: 0 }, isRepeated: false, isIgnored: false });
  assert.equal((await backend.reportStatus(printer, { from: "idle", to: "running" }, { eventId: "e" })).isRepeated, true);
  assert.equal((await backend.reportProgress(printer, 50.4)).event, "progress_milestone");
  assert.equal((await backend.reportProgress(printer, 51)).event, undefined);
  assert.equal((await backend.reportStatus(printer, { from: "running", to: "melting" })).isIgnored, true);
  const { printerState } = await pushed(token, (payload) => payload.printerState?.type === "print_started");
  assert.equal(device.name("printer", printerState.prefix, [printer]), printer);
  assert.equal((await accounts.testPush("monitor", { printer })).queued, 1);
  await fails(accounts.monitors(printer), { kind: "unauthorized", code: "back_end_only" });
  await accounts.deleteMonitor(device);
  await fails(accounts.updateMonitor(device, { onStart: false }), { kind: "gone", code: "device_not_found" });
});

test("a phone rings", async () => {
  const { user, accounts } = await newUser();
  const [old, token] = [newToken(), newToken()];
  const phone = await accounts.registerPhone(old, { uid: user });
  assert.equal((await accounts.registerPhone(token, { uid: user, previous: old })).id, phone.id);
  const call = JSON.stringify({
    trigger: "call_initiated",
    data: { id: "s1", sessionId: `s-${user}`, type: "video", initiator: { uid: "alice" }, receiver: { uid: user }, receiverType: "user" } });
  const secret = (await readFile(join(broker.folder, "state/keys/webhook.secret"), "utf8")).trim();
  const signature = createHmac("sha256", secret).update(call).digest("hex");
  const rung = await fetch(`${broker.url}/webhooks/call`, { method: "POST", body: call, headers: { "X-CometChat-Signature": signature } });
  assert.equal((await rung.json()).rang, 1);
  const push = await pushed(token);
  assert.equal(phone.name("uid", push.callerUid, ["bob", "alice"]), "alice");
  assert.equal(push.sessionId, phone.handle("session", `s-${user}`));
  assert.equal((await accounts.testPush("calls")).queued, 1);
  await fails(accounts.registerPhone(newToken(), { uid: "somebody-else" }), { kind: "unauthorized", code: "another_user" });
  assert.equal(await accounts.deletePhones({ uid: user, token: old }), 0);
  await fails(accounts.deletePhones({ uid: user, token: undefined }), { kind: "invalid", code: "invalid_token" });
  assert.equal(await accounts.deletePhones({ uid: user, all: true }), 1);
});

test("a registration is kept, and shows no secret by itself", async () => {
  const { accounts, jwt } = await newUser();
  const phone = await accounts.registerDevice(newToken());
  const kept = JSON.parse(JSON.stringify(phone.credentials()));
  const again = new Registration(kept);
  assert.equal(again.handle("session", "s"), phone.handle("session", "s"));
  assert.deepEqual([again.id, again.expiresAt], [phone.id, phone.expiresAt]);
  const feed = accounts.follow();
  const shown = [phone, accounts, feed].map((one) => inspect(one, { depth: Infinity, showHidden: true }) + JSON.stringify(one)).join();
  feed.leave();
  for (const secret of [kept.ref, kept.handleKey, jwt]) assert.ok(!shown.includes(secret));
  for (const wrong of [undefined, null, {}, { ...kept, handleKey: 7 }, { ...kept, id: "../x" }]) {
    assert.throws(() => new Registration(wrong), { code: "invalid_registration" });
  }
});

test("each refusal of a JWT and a name", async () => {
  const { accounts, jwt } = await newUser();
  const of = (token) => new Accounts(client, () => token);
  await fails(of(`${jwt}x`).status(), { kind: "unauthorized", code: "invalid_jwt", status: 401 });
  await assert.rejects(of(`${jwt}x`).follow().next(), { name: "MayflyError", kind: "unauthorized", code: "invalid_jwt" });
  for (const wrong of [undefined, "", "a b", `${jwt}\r\nX: y`]) {
    const error = await of(wrong).status().then(assert.fail, (error) => error);
    assert.equal(error.code, "invalid_jwt");
    assert.ok(!wrong || !error.message.includes(wrong));
  }
  await assert.rejects(new Accounts(client, () => { throw new RangeError("logged out"); }).status(), { name: "RangeError" });
  assert.throws(() => new Accounts({}, () => jwt), { code: "invalid_accounts" });
  for (const name of [undefined, null, "", ".", "..", "\ud800"]) await fails(accounts.clearSession(name), { code: "invalid_name" });
  await fails(accounts.clearSession("x".repeat(129)), { kind: "invalid", code: "out_of_range" });
  await fails(accounts.registerDevice("no token"), { code: "invalid_token", field: "deviceToken" });
  const abort = AbortSignal.abort(new Error("closed"));
  await assert.rejects(accounts.status({ signal: abort }), { message: "closed" });
});

describe("answers of another server", () => {
  const sealed = { success: true, ref: "0".repeat(32), expiresAt: "2030-01-02T03:04:05Z", handleKey: "A".repeat(43) };
  const [token, device, phone] = ["tok", "device", "voip"].map((kind) => (kind === "device" ? "A".repeat(22) : `${kind}_${"A".repeat(22)}`));
  const settings = Object.fromEntries(["notifications_enabled", "on_start", "on_complete", "on_failed", "on_paused", "on_milestone"].map((name) => [name, 1]));
  // Each call with a valid answer, whose every field is needed.
  const CALLS = [
    [(one) => one.registerDevice("a1"), { ...sealed, tokenId: token }],
    [(one) => one.registerActivity("a1", { activityId: "a", sessionId: "s" }), { ...sealed, tokenId: token }],
    [(one) => one.deleteToken(token), { success: true }],
    [(one) => one.status(), { deviceTokenRegistered: true, liveActivityTokens: [{ activityId: "a", sessionId: "s", registeredAt: sealed.expiresAt }] }],
    [(one) => one.report("s", { type: "task_failed" }), { success: true, pushes: 1 }],
    [(one) => one.respond("r", true), { success: true }],
    [(one) => one.approval("r"), { requestId: "r", sessionId: "s", status: "pending", expiresAt: sealed.expiresAt }],
    [(one) => one.clearApproval("r"), { success: true, devicesNotified: 1 }],
    [(one) => one.clearSession("s"), { success: true, clearedCount: 1 }],
    [(one) => one.registerMonitor("a1"), { ...sealed, deviceId: device }],
    [(one) => one.updateMonitor(device, {}), { success: true }],
    [(one) => one.deleteMonitor(device), { success: true }],
    [(one) => one.monitors("p"), { success: true, devices: [{ id: device, ...settings }] }],
    [(one) => one.reportStatus("p", { from: "idle", to: "running" }), { success: true, pushes: 1 }],
    [(one) => one.reportProgress("p", 5), { success: true, pushes: 1 }],
    [(one) => one.registerPhone("a1", { uid: "u" }), { ...sealed, tokenId: phone }],
    [(one) => one.deletePhones({ uid: "u", all: true }), { success: true, purged: 1 }],
    [(one) => one.testPush("calls"), { success: true, pushes: 1 }],
  ];
  let server, hostile, answer, silent;

  before(async () => {
    server = createServer((request, response) => {
      request.resume();
      if (request.url.startsWith("/silent")) return;
      response.writeHead(200, { "Content-Type": "application/json" }).end(answer);
    }).listen(0, "127.0.0.1");
    await once(server, "listening");
    silent = `http://127.0.0.1:${server.address().port}/silent`;
    hostile = new Accounts(new Client(`http://127.0.0.1:${server.address().port}`, { environment: "sandbox" }), () => "a.b.c");
  });
  after(() => server.close());

  test("each call reads only valid answers", async () => {
    let tried = 0;
    for (const [call, valid] of CALLS) {
      answer = JSON.stringify({ ...valid, new: { a: [1] } });
      await call(hostile);
      const wrong = ["null", "[]", "7", "{}", "<html>", "[".repeat(30_000), " ".repeat(70_000)];
      for (const name of Object.keys(valid)) {
        for (const value of [undefined, null, 7.5, { toString: 7 }, [7], ""]) wrong.push(JSON.stringify({ ...valid, [name]: value }));
      }
      for (const text of wrong) {
        answer = text;
        await assert.rejects(call(hostile), { name: "MayflyError", kind: "foreign" }, `${call}: ${text.slice(0, 200)}`);
        tried++;
      }
    }
    assert.ok(tried > 400, `${tried}`);
  });

  test("optional fields are read, too", async () => {
    for (const change of [{ throttled: "1" }, { skipped: -1 }, { repeated: 1 }, { expiresAt: "soon" }, { requestId: {} }]) {
      answer = JSON.stringify({ success: true, pushes: 1, ...change });
      await fails(hostile.report("s", { type: "task_failed" }), { kind: "foreign" });
    }
  });

  // A screen may close because of another call's error.
  for (const [name, jwt] of [["its JWT", () => new Promise(() => {})], ["its answer", () => "a.b.c"]]) {
    test(`a call that waits for ${name} can be aborted`, async () => {
      const accounts = new Accounts(new Client(silent, { environment: "sandbox" }), jwt);
      const abort = new AbortController();
      const call = accounts.status({ signal: abort.signal });
      setTimeout(() => abort.abort(new MayflyError("unavailable", "overloaded", "enough", { status: 503 })), 1);
      await assert.rejects(Promise.race([call, new Promise((resolve) => { setTimeout(resolve, 2_000); })]), { message: "enough" });
    });
  }

  const AUTHENTICATED = { type: "authenticated", expiresAt: sealed.expiresAt };

  test("claims that wait when the app leaves are dropped", async () => {
    const real = globalThis.WebSocket;
    const sent = [];
    let socket;
    globalThis.WebSocket = class {
      readyState = 1;
      constructor() { socket = this; }
      send(text) { sent.push(JSON.parse(text)); }
      close() {}
    };
    try {
      let become;
      const appState = { currentState: "active", addEventListener: (_, listener) => { become = listener; return { remove() {} }; } };
      const feed = hostile.follow({ appState });
      feed.claim("old", { device: "phone" });
      become("background");
      become("active");
      feed.claim("new", { device: "phone" });
      socket.onopen();
      await eventually(() => sent.length === 1, "the JWT");
      socket.onmessage({ data: JSON.stringify(AUTHENTICATED) });
      assert.deepEqual(sent.slice(1).map(({ sessionId }) => sessionId), ["new"]);
      feed.leave();
    } finally {
      globalThis.WebSocket = real;
    }
  });

  test("a feed reads only valid news", async () => {
    const real = globalThis.WebSocket;
    let socket;
    globalThis.WebSocket = class {
      readyState = 1;
      constructor() { socket = this; }
      send(text) { this.sent = text; }
      close() {}
    };
    const play = async (...messages) => {
      const feed = hostile.follow();
      socket.onopen();
      await eventually(() => socket.sent, "the JWT");
      for (const message of messages) socket.onmessage({ data: typeof message === "string" ? message : JSON.stringify(message) });
      return feed;
    };
    try {
      const wrong = [
        "x", "[]", {}, { type: 7 }, { type: "authenticated" }, { type: "authenticated", expiresAt: 5 }, { type: "approval_request", requestId: "r" },
        { type: "approval_response", requestId: "r", sessionId: "s", approved: 1 }, { type: "progress_update", sessionId: "s" },
        { type: "progress_update", sessionId: "s", data: null },
        { type: "progress_update", sessionId: "s", data: { todoProgress: { completed: "1", total: 2 } } },
        { type: "state_change", sessionId: "s", data: { newState: {} } }, { type: "error", code: "invalid_jwt" }, "x".repeat(20_000),
      ];
      for (const message of wrong) {
        const feed = await play(message);
        await assert.rejects(feed.next(), { name: "MayflyError", kind: "foreign" }, JSON.stringify(message).slice(0, 200));
      }
      const feed = await play(AUTHENTICATED, { type: "of_a_later_broker", sessionId: 7 }, { type: "accepted" }, ...Array(99).fill({ type: "pong" }), {
        type: "state_change", sessionId: "s", data: { newState: "word" } });
      assert.equal((await feed.next()).value.type, "connected");
      assert.equal((await feed.next()).value.newState, "word");
      feed.leave();
      const flood = await play(AUTHENTICATED, ...Array(5_001).fill({ type: "pong" }));
      await flood.next();
      await assert.rejects(flood.next(), { name: "MayflyError", kind: "foreign" });
    } finally {
      globalThis.WebSocket = real;
    }
  });
});
