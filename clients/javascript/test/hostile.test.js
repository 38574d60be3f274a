// What a server does that is no broker, or a broken one: the corpus of clients/hostile, in a real Node.

import assert from "node:assert/strict";
import { after, before, describe, mock, test } from "node:test";
import { Client, MayflyError } from "../mayfly.js";
import { HostileServer, freePort } from "./broker.js";

const server = await HostileServer.start();
after(() => server.stop());
const { answers, sockets, valid } = server.corpus;

// What nobody catches ends a Node process. Here it fails the test that runs, and is counted.
let uncaught = 0;
process.on("uncaughtExceptionMonitor", () => { uncaught++; });

const CALLS = {
  create: (client, signal) => client.create({ code: "a-code-of-the-app", signal }),
  accept: (client, signal) => client.accept({ code: "a-code-of-the-app", signal }),
  status: (client, signal) => room(client).status({ signal }),
  replaceToken: (client, signal) => room(client).replaceToken("a1a1", { signal }),
  withdrawToken: (client, signal) => room(client).withdrawToken({ signal }),
  reportPresence: (client, signal) => room(client).reportPresence({ signal }),
  testPush: (client, signal) => room(client).testPush({ signal }),
  close: (client, signal) => room(client).close({ signal }),
};

const clientOf = (name) => new Client(`${server.url}/${name}`, { environment: "sandbox" });
const down = async () => new Client(`http://127.0.0.1:${await freePort()}`, { environment: "sandbox" });
const room = (client) => client.room({ ...valid.create, client: "c", side: 1 });

/** Waits for a call, and returns the kind of its failure or `ok`. */
async function outcome(promise) {
  try {
    await promise;
    return "ok";
  } catch (error) {
    if (!(error instanceof MayflyError)) return `${error.name}: ${error.message}`;
    assert.ok(error.message.length > 20 && error.message.length <= 1000 && typeof error.code === "string", error.message);
    return error.kind;
  }
}

const wanted = ({ kind }) => [kind].flat();

test("each call reads only Mayfly's answers", async (t) => {
  const cases = answers.filter((one) => !one.isSlow).flatMap((one) => (one.calls ?? Object.keys(CALLS)).map((call) => [one, call]));
  assert.ok(cases.length > 300, `${cases.length} cases`);
  const wrong = [];
  // Many at once, since calls that may repeat a lost answer take five seconds.
  const next = cases.values();
  await Promise.all(Array.from({ length: 16 }, async () => {
    for (const [one, call] of next) {
      const kind = await outcome(CALLS[call](clientOf(one.name)));
      if (!wanted(one).includes(kind)) wrong.push(`${one.name}, ${call}: ${kind} instead of ${one.kind}`);
    }
  }));
  assert.deepEqual(wrong, []);
  t.diagnostic(`${cases.length} answers`);
});

test("a silent or dribbling server is given up", async () => {
  const sleep = (ms) => new Promise((resolve) => { realSetTimeout(resolve, ms); });
  const realSetTimeout = setTimeout;
  mock.timers.enable({ apis: ["setTimeout"] });
  try {
    for (const one of answers.filter((answer) => answer.isSlow)) {
      let kind;
      const done = outcome(CALLS[one.calls[0]](clientOf(one.name))).then((found) => { kind = found; });
      await sleep(300);
      mock.timers.tick(19_999);
      await sleep(100);
      assert.equal(kind, undefined);
      mock.timers.tick(1);
      await done;
      assert.equal(kind, one.kind, one.name);
    }
  } finally {
    mock.timers.reset();
  }
});

/** Joins over a hostile socket, and returns what the app learns first: the failure's kind, or the event that no broker's `joined` precedes. */
async function heard(name) {
  const session = room(clientOf(name)).join();
  try {
    for await (const event of session) {
      if (event.type === "room_gone") return "gone";
      if (event.type === "disconnected") return "disconnected";
      if (event.type === "joined" && sockets.find((one) => one.name === name).kind === "ok") return "ok";
    }
    return "the end";
  } catch (error) {
    assert.ok(error instanceof MayflyError && error.message.length > 20, String(error));
    return error.kind;
  } finally {
    session.leave();
  }
}

describe("a session reads only Mayfly's messages", { concurrency: 8 }, () => {
  for (const one of sockets.filter(({ only }) => only !== "swift")) {
    test(one.name, { timeout: 30_000 }, async () => {
      const kind = await heard(one.name);
      assert.ok(wanted(one).includes(kind), `${kind} instead of ${one.kind}`);
    });
  }
});

test("a session tells that it can't connect, once", async () => {
  for (const name of ["page-404", "page-502", "redirect-302", "closed"]) assert.equal(await heard(name), "disconnected", name);
  const session = room(await down()).join();
  assert.deepEqual(await session.next(), { value: { type: "disconnected" }, done: false });
  session.leave();
  assert.deepEqual(await session.next(), { value: undefined, done: true });
});

test("events without a reader are bounded, and the newest stay", async () => {
  const real = globalThis.WebSocket;
  let socket;
  globalThis.WebSocket = class {
    readyState = 1;
    constructor() { socket = this; }
    send() {}
    close() {}
  };
  try {
    const session = room(new Client("http://127.0.0.1:1", { environment: "sandbox" })).join();
    socket.onopen();
    const hear = (message) => socket.onmessage({ data: JSON.stringify(message) });
    for (let i = 0; i < 99; i++) hear({ type: "peer_joined" });
    hear({ type: "room_closed" });
    const events = [];
    for await (const event of session) events.push(event.type);
    assert.equal(events.length, 64);
    assert.equal(events.at(-1), "room_closed");
  } finally {
    globalThis.WebSocket = real;
  }
});

test("a broker that is down is reported at once", async () => {
  let calls = 0;
  const real = globalThis.fetch;
  globalThis.fetch = (...request) => { calls++; return real(...request); };
  try {
    const client = await down();
    for (const call of Object.values(CALLS)) assert.equal(await outcome(call(client)), "unreachable");
    assert.equal(calls, Object.keys(CALLS).length);
  } finally {
    globalThis.fetch = real;
  }
});

test("create asks for a lost answer for five seconds at most, with one client id", async () => {
  const real = globalThis.fetch;
  const sent = [];
  const start = Date.now();
  let now = start;
  mock.method(Date, "now", () => now);
  const timers = mock.method(globalThis, "setTimeout", (action, ms) => {
    if (ms < 20_000) queueMicrotask(() => { now += ms; action(); });
    return 0;
  });
  // A browser doesn't say whether anything was sent.
  globalThis.fetch = async (url, { body }) => {
    sent.push(JSON.parse(body).client1);
    throw new TypeError("Failed to fetch");
  };
  try {
    const client = new Client("http://127.0.0.1:1", { environment: "sandbox" });
    assert.equal(await outcome(CALLS.create(client)), "unreachable");
    assert.ok(sent.length > 2 && now - start <= 5_000, `${sent.length} tries in ${now - start} ms`);
    // Another call of the app goes on with it.
    assert.equal(await outcome(CALLS.create(client)), "unreachable");
    assert.equal(new Set(sent).size, 1);
  } finally {
    globalThis.fetch = real;
    timers.mock.restore();
    mock.restoreAll();
  }
});

test("every call can be aborted, before it, during it and while it waits", async () => {
  const reason = new Error("the user has closed the screen");
  for (const [name, call] of Object.entries(CALLS)) {
    const before = AbortSignal.abort(reason);
    await assert.rejects(call(clientOf("valid"), before), reason, name);
    for (const silent of ["silent", "page-503-soon"]) {
      const abort = new AbortController();
      const done = call(clientOf(silent), abort.signal);
      setTimeout(() => abort.abort(reason), 100);
      await assert.rejects(done, reason, name);
    }
    // A signal that is never used leaves nothing behind.
    const unused = new AbortController();
    await call(clientOf("valid"), unused.signal);
  }
});

before(() => { uncaught = 0; });
after(() => assert.equal(uncaught, 0));
