import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { connect, createServer } from "node:net";
import { after, before, describe, test } from "node:test";
import { Client, JoinCode } from "../mayfly.js";
import { Broker, eventually } from "./broker.js";

const newToken = () => randomBytes(32).toString("hex");
const options = { environment: "sandbox" };
let broker, client;

before(async () => {
  broker = await Broker.start();
  client = new Client(broker.url, options);
});
after(() => broker.stop());

async function makeRoom(tokens = {}) {
  const code = JoinCode.random();
  return [await client.create({ code, token: tokens.creator }), await client.accept({ code, token: tokens.joiner })];
}

/** Reads to the next event, which must be of this type. */
async function expect(session, type) {
  const { value } = await session.next();
  assert.equal(value?.type, type);
  return value;
}

class FakeAppState {
  currentState = "active";
  listeners = new Set();
  addEventListener(type, listener) {
    assert.equal(type, "change");
    this.listeners.add(listener);
    return { remove: () => this.listeners.delete(listener) };
  }
  become(state) {
    this.currentState = state;
    for (const listener of this.listeners) listener(state);
  }
}

describe("a session", { concurrency: true }, () => {
  test("reports who comes, leaves and closes, in order", async () => {
    const code = JoinCode.random();
    const creator = await client.create({ code });
    const ann = creator.join();
    const first = await expect(ann, "joined");
    assert.deepEqual(first, { type: "joined", expiresAt: first.expiresAt, peerPresent: false, delivery: "no_token" });
    assert.ok(first.expiresAt instanceof Date);
    const joiner = await client.accept({ code });
    await expect(ann, "peer_accepted");
    const ben = joiner.join();
    assert.equal((await expect(ben, "joined")).delivery, "peer_present");
    await expect(ann, "peer_joined");
    ben.leave();
    assert.deepEqual(await expect(ann, "peer_left"), { type: "peer_left", delivery: undefined });
    assert.deepEqual(await ben.next(), { value: undefined, done: true });
    const rest = [];
    const reading = (async () => { for await (const event of ann) rest.push(event.type); })();
    await joiner.close();
    await reading;
    assert.deepEqual(rest, ["room_closed"]);
    const late = [];
    for await (const event of joiner.join()) late.push(event.type);
    assert.deepEqual(late, ["room_gone"]);
  });

  test("a break leaves", async () => {
    const [creator, joiner] = await makeRoom();
    const ann = creator.join();
    await expect(ann, "joined");
    for await (const event of joiner.join()) {
      assert.equal(event.type, "joined");
      break;
    }
    await expect(ann, "peer_joined");
    await expect(ann, "peer_left");
    ann.leave();
  });

  test("a refused side gets an error, once", async () => {
    const [creator] = await makeRoom();
    const session = client.room({ ...creator.credentials(), client: "other" }).join();
    await assert.rejects(session.next(), { name: "MayflyError", kind: "unauthorized", code: "not_a_member" });
    assert.deepEqual(await session.next(), { value: undefined, done: true });
  });

  test("a side over its share waits and joins", async () => {
    const [creator] = await makeRoom();
    for (let i = 0; i < 5; i++) await creator.reportPresence();
    const session = creator.join();
    await expect(session, "disconnected");
    await expect(session, "joined");
    session.leave();
  });

  test("an app in the background leaves, and returns", async () => {
    const [creator, joiner] = await makeRoom();
    const ann = creator.join();
    await expect(ann, "joined");
    const appState = new FakeAppState();
    const ben = joiner.join({ appState });
    await expect(ben, "joined");
    await expect(ann, "peer_joined");
    appState.become("inactive");
    appState.become("background");
    assert.equal((await expect(ann, "peer_left")).delivery, undefined);
    appState.become("active");
    await expect(ann, "peer_joined");
    await expect(ben, "joined");
    ben.leave();
    assert.equal(appState.listeners.size, 0);
    ann.leave();
  });

  test("a dead connection is noticed", async () => {
    // Passes bytes on until it is stopped, as a network that was switched.
    let passes = true;
    const ends = [];
    const proxy = createServer((socket) => {
      const other = connect(broker.port, "127.0.0.1");
      const isOld = passes;
      ends.push(socket, other);
      for (const [from, to] of [[socket, other], [other, socket]]) {
        from.on("data", (bytes) => { if (passes || !isOld) to.write(bytes); });
        from.on("error", () => {});
      }
    }).listen(0, "127.0.0.1");
    await once(proxy, "listening");
    const [creator] = await makeRoom();
    const appState = new FakeAppState();
    const session = new Client(`http://127.0.0.1:${proxy.address().port}`, options).room(creator.credentials()).join({ appState });
    await expect(session, "joined");
    passes = false;
    appState.become("active");
    await expect(session, "disconnected");
    await expect(session, "joined");
    session.leave();
    for (const end of ends) end.destroy();
    proxy.close();
  });

  test("a suspended side gets a push, and the other learns it", async () => {
    const tokens = { creator: newToken(), joiner: newToken() };
    const [creator, joiner] = await makeRoom(tokens);
    const program = `
      import { Client } from ${JSON.stringify(new URL("../mayfly.js", import.meta.url).href)};
      const room = new Client(process.env.URL, { environment: "sandbox" }).room(JSON.parse(process.env.ROOM));
      for await (const event of room.join()) console.log(event.type);`;
    const phone = spawn(process.execPath, [...process.execArgv.filter((flag) => flag.includes("websocket")), "--input-type=module", "-e", program], {
      env: { ...process.env, NODE_TEST_CONTEXT: "", URL: broker.url, ROOM: JSON.stringify(creator.credentials()) }, stdio: ["ignore", "pipe", "inherit"],
    });
    try {
      const [line] = await once(phone.stdout, "data");
      assert.equal(String(line), "joined\n");
      phone.kill("SIGSTOP");
      // A socket that has just joined counts as alive for two seconds.
      await new Promise((resolve) => setTimeout(resolve, 2500));
      const ben = joiner.join();
      assert.equal((await expect(ben, "joined")).delivery, "peer_present");
      assert.equal((await expect(ben, "peer_left")).delivery, "queued");
      const [push] = await eventually(async () => (await broker.pushes(tokens.creator)).length && broker.pushes(tokens.creator), "the push");
      assert.equal(push.payload.roomId, creator.handle);
      ben.leave();
    } finally {
      phone.kill("SIGKILL");
    }
  });
});

const JOINED = '{"type":"joined","expiresAt":"2030-01-02T03:04:05Z","peerPresent":false,"delivery":"queued"}';

test("an app that returns asks at once for a sign of life", async () => {
  const [creator] = await makeRoom();
  const own = globalThis.WebSocket;
  const sent = [];
  globalThis.WebSocket = class {
    readyState = 1;
    constructor() { sent.push("open"); queueMicrotask(() => { this.onopen(); this.onmessage({ data: JOINED }); }); }
    send(text) { sent.push(JSON.parse(text).type); }
    close() { sent.push("close"); }
  };
  try {
    const appState = new FakeAppState();
    // An app that iOS starts in the background, for a push, waits.
    appState.become("background");
    const session = creator.join({ appState });
    assert.deepEqual(sent, []);
    appState.become("active");
    await expect(session, "joined");
    appState.become("active");
    assert.deepEqual(sent, ["open", "join_room", "ping"]);
    session.leave();
    assert.deepEqual(sent.slice(3), ["leave_room", "close"]);
  } finally {
    globalThis.WebSocket = own;
  }
});

test("a page leaves as it is suspended, and returns", async () => {
  const own = { document: globalThis.document, window: globalThis.window, matchMedia: globalThis.matchMedia };
  const [document, window] = [new EventTarget(), new EventTarget()];
  document.visibilityState = "visible";
  let isPhone = false;
  Object.assign(globalThis, { document, window, matchMedia: (query) => ({ matches: query === "(pointer: coarse)" && isPhone }) });
  try {
    const [creator, joiner] = await makeRoom();
    const ann = creator.join({ appState: new FakeAppState() });
    await expect(ann, "joined");
    const ben = joiner.join();
    await expect(ben, "joined");
    await expect(ann, "peer_joined");
    const show = (state) => {
      document.visibilityState = state;
      document.dispatchEvent(new Event("visibilitychange"));
    };
    // Hidden on a desktop, it stays: the next event is of the freeze.
    show("hidden");
    for (const [leave, comeBack] of [
      [() => document.dispatchEvent(new Event("freeze")), () => document.dispatchEvent(new Event("resume"))],
      [() => window.dispatchEvent(new Event("pagehide")), () => window.dispatchEvent(new Event("pageshow"))],
      [() => { isPhone = true; show("hidden"); }, () => show("visible")],
    ]) {
      const before = Date.now();
      leave();
      assert.equal((await expect(ann, "peer_left")).delivery, undefined);
      // Joining more than five times in five seconds is refused.
      await new Promise((resolve) => setTimeout(resolve, Math.max(0, before + 1500 - Date.now())));
      comeBack();
      await expect(ann, "peer_joined");
      await expect(ben, "joined");
    }
    ben.leave();
    ann.leave();
  } finally {
    Object.assign(globalThis, own);
  }
});

test("a session survives a restart of the broker", async () => {
  const tokens = { joiner: newToken() };
  const [creator, joiner] = await makeRoom(tokens);
  const ann = creator.join();
  assert.equal((await expect(ann, "joined")).delivery, "queued");
  await broker.kill();
  await expect(ann, "disconnected");
  await broker.run();
  await expect(ann, "joined");
  const ben = joiner.join();
  await expect(ann, "peer_joined");
  await expect(ben, "joined");
  for (const session of [ann, ben]) session.leave();
});

// These replace the global WebSocket, so they run alone.

test("waits for as long as a hostile server says, but not for ever", async () => {
  const [room] = await makeRoom();
  const real = globalThis.WebSocket;
  let opened = 0;
  globalThis.WebSocket = class {
    readyState = 1;
    constructor() {
      opened++;
      queueMicrotask(() => {
        this.onopen();
        const seconds = [1e12, -1][opened % 2];
        this.onmessage({ data: JSON.stringify({ type: "error", code: "overloaded", error: "x", retryAfterSeconds: seconds }) });
      });
    }
    send() {}
    close() {}
  };
  try {
    const session = room.join();
    await new Promise((resolve) => { setTimeout(resolve, 1_500); });
    session.leave();
    assert.ok(opened >= 1 && opened <= 4, `${opened} connections in 1.5 s`);
  } finally {
    globalThis.WebSocket = real;
  }
});

test("ends if no WebSocket may be opened", async () => {
  const [room] = await makeRoom();
  const real = globalThis.WebSocket;
  globalThis.WebSocket = class { constructor() { throw new Error("SecurityError"); } };
  try {
    const session = room.join();
    await assert.rejects(session.next(), { kind: "invalid", code: "websocket_refused" });
    assert.deepEqual(await session.next(), { value: undefined, done: true });
  } finally {
    globalThis.WebSocket = real;
  }
});
