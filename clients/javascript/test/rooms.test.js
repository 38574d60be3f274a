import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { createServer } from "node:http";
import { after, before, describe, test } from "node:test";
import { inspect } from "node:util";
import { Client, JoinCode, nickname } from "../mayfly.js";
import { Broker, eventually } from "./broker.js";

const newToken = () => randomBytes(32).toString("hex");
let broker, client;

before(async () => {
  broker = await Broker.start();
  client = new Client(broker.url, { environment: "sandbox" });
});
after(() => broker.stop());

/** Both sides of a room. */
async function makeRoom(tokens = {}) {
  const code = JoinCode.random();
  const creator = await client.create({ code, token: tokens.creator });
  return [creator, await client.accept({ code: JoinCode.parse(code.display.toLowerCase()), token: tokens.joiner })];
}

const fails = (promise, wanted) => assert.rejects(promise, { name: "MayflyError", ...wanted });

test("a room from its creation to its end", async () => {
  const tokens = { creator: newToken(), joiner: newToken() };
  const [creator, joiner] = await makeRoom(tokens);
  assert.deepEqual([creator.side, joiner.side], [1, 2]);
  assert.ok(creator.expiresAt > Date.now() && creator.joinExpiresAt > Date.now() && joiner.joinExpiresAt === undefined);
  for (const room of [creator, joiner]) assert.match(room.credentials().ref, /^[0-9a-f]{32}$/);

  assert.equal(await joiner.reportPresence(), "queued");
  const [push] = await eventually(async () => (await broker.pushes(tokens.creator)).length && broker.pushes(tokens.creator), "the push");
  assert.equal(push.payload.roomId, creator.handle);
  assert.equal(nickname(push.payload, [[joiner, "Ann"], [creator, "Ben"]]), "Ben");

  assert.deepEqual(await creator.status(), {
    expiresAt: creator.expiresAt, accepted: true, own: { isPresent: false, hasToken: true }, peer: { isPresent: true, hasToken: true },
  });
  await joiner.reportLeaving();

  const before = creator.credentials().ref;
  await creator.replaceToken(newToken());
  assert.notEqual(creator.credentials().ref, before);
  await creator.withdrawToken();
  assert.equal(creator.credentials().ref, undefined);
  assert.equal((await creator.status()).own.hasToken, false);

  await creator.close();
  await fails(joiner.status(), { kind: "gone", code: "room_not_found", status: 404 });
  await fails(creator.close(), { kind: "gone" });
});

test("a side tries its own address", async () => {
  const token = newToken();
  const [creator, joiner] = await makeRoom({ creator: token });
  assert.equal(await creator.testPush(), "queued");
  const [push] = await eventually(async () => (await broker.pushes(token)).length && broker.pushes(token), "the push");
  assert.equal(push.payload.roomId, creator.handle);
  assert.equal(await joiner.testPush(), "no_token");
  for (const _ of [2, 3]) await creator.testPush();
  await fails(creator.testPush(), { kind: "exhausted", code: "too_many_requests", status: 429 });
  await fails(client.room({ ...joiner.credentials(), client: "other" }).testPush(), { kind: "unauthorized", code: "not_a_member" });
});

test("a side comes back with its credentials", async () => {
  const [creator, joiner] = await makeRoom();
  const kept = JSON.parse(JSON.stringify(joiner.credentials()));
  assert.equal(kept.ref, undefined);
  const again = new Client(`${broker.url}/`, { environment: "production" }).room(kept);
  assert.equal(again.handle, joiner.handle);
  assert.notEqual(again.handle, creator.handle);
  assert.equal(await again.reportPresence(), "no_token");
  await again.replaceToken(newToken());
  assert.equal((await creator.status()).peer.hasToken, true);
});

test("the app's own codes and lives are sent unchanged", async () => {
  const code = "own-code_" + randomBytes(6).toString("hex");
  const room = await client.create({ code, expiresInSeconds: 60, joinExpiresInSeconds: 20 });
  assert.ok(Math.abs(room.expiresAt - room.joinExpiresAt - 40_000) <= 1000);
  assert.equal((await client.accept({ code })).credentials().roomid, room.credentials().roomid);
});

test("each kind of failure", async () => {
  const code = JoinCode.random();
  const creator = await client.create({ code });
  await fails(client.create({ code }), { kind: "conflict", code: "join_code_in_use", status: 409 });
  const joiner = await client.accept({ code });
  await fails(client.accept({ code }), { kind: "conflict", code: "room_already_accepted" });
  await fails(client.accept({ code: JoinCode.random() }), { kind: "gone", code: "room_not_found" });
  await fails(client.create({ code: JoinCode.random(), token: "no token" }), { kind: "invalid", code: "invalid_token", field: "client1_token" });
  await fails(client.create({}), { kind: "invalid", code: "missing_field", field: "joinid", status: 400 });
  await fails(client.create({ code: JoinCode.random(), expiresInSeconds: 1 }), { kind: "invalid", code: "out_of_range" });
  const other = new Client(broker.url, { environment: "sandbox", bundleId: "org.example.unknown" });
  await fails(other.create({ code: JoinCode.random(), token: newToken() }), { kind: "invalid", code: "app_not_served" });
  await joiner.reportPresence();
  const { member, ...stolen } = joiner.credentials();
  await fails(client.room(stolen).reportPresence(), { kind: "unauthorized", code: "member_required", status: 403 });
  await fails(client.room({ ...stolen, client: "other", member }).reportPresence(), { kind: "unauthorized", code: "not_a_member" });
  await fails(client.room({ ...stolen, roomid: "A".repeat(43) }).status(), { kind: "gone" });
  const nowhere = new Client(`${broker.url}/nowhere`, { environment: "sandbox" });
  await fails(nowhere.room(creator.credentials()).status(), { kind: "invalid", code: "not_found", status: 404 });
  const down = new Client("http://127.0.0.1:1", { environment: "sandbox" });
  await fails(down.room(creator.credentials()).status(), { kind: "unreachable", code: "network", status: 0 });
});

describe("answers that are lost or refused", () => {
  let proxy, faults, seen, unsure;

  // Stands between client and broker. `faults` are what it does to the next requests: `lose` the broker's answer, or answer by itself.
  before(async () => {
    proxy = createServer(async (request, response) => {
      const body = Buffer.concat(await request.toArray());
      seen.push({ at: Date.now(), path: request.url, body: body.length ? JSON.parse(body) : null });
      const fault = faults.shift();
      if (fault?.status) return response.writeHead(fault.status, fault.headers).end(fault.body);
      const { host, connection, ...headers } = request.headers;
      const answer = await fetch(broker.url + request.url, { method: request.method, headers, body: body.length ? body : undefined });
      const text = await answer.text();
      if (fault === "lose") return response.destroy();
      if (fault === "garble") return response.socket.end(`HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n${text}`);
      if (fault === "endless") {
        response.writeHead(200);
        const more = () => { while (!response.destroyed && response.write(" ".repeat(65_536))); };
        response.on("drain", more);
        return more();
      }
      response.writeHead(answer.status, { "Content-Type": answer.headers.get("Content-Type") }).end(text);
    }).listen(0, "127.0.0.1");
    await once(proxy, "listening");
    unsure = new Client(`http://127.0.0.1:${proxy.address().port}`, { environment: "sandbox" });
  });
  after(() => proxy.close());

  const plan = (...next) => { [faults, seen] = [next, []]; };
  const busy = (status, seconds) => ({
    status, headers: { "Content-Type": "application/problem+json", "Retry-After": String(seconds) },
    body: JSON.stringify({ code: status === 429 ? "too_many_requests" : "overloaded", detail: "Try again." }),
  });

  test("errors of the runtime show nothing of an answer", async () => {
    const [creator] = await makeRoom();
    const room = unsure.room(creator.credentials());
    plan("garble");
    const error = await room.replaceToken(newToken()).then(assert.fail, (error) => error);
    assert.equal(error.code, "network");
    const shown = inspect(error, { depth: Infinity, showHidden: true }) + error.stack + JSON.stringify(error);
    for (const secret of [room.credentials().roomid, room.credentials().member, '"ref"']) assert.ok(!shown.includes(secret));
  });

  test("answers that are no broker's are refused", async () => {
    const [creator] = await makeRoom();
    plan("endless");
    await fails(unsure.room(creator.credentials()).close(), { kind: "foreign", code: "foreign_answer", status: 200 });
    plan();
    await assert.rejects(unsure.create({ code: JoinCode.random(), token: 1n }), TypeError);
    assert.equal(seen.length, 0);
  });

  test("create and accept are repeated with the same client id", async () => {
    const code = JoinCode.random();
    plan("lose", { status: 502, body: "<html>" }, null, "lose", null);
    const creator = await unsure.create({ code, token: newToken() });
    const joiner = await unsure.accept({ code, token: newToken() });
    assert.deepEqual(seen.map(({ path }) => path.split("/").pop()), ["rooms", "rooms", "rooms", "accept", "accept"]);
    assert.equal(new Set(seen.slice(0, 3).map(({ body }) => body.client1)).size, 1);
    assert.equal(new Set(seen.slice(3).map(({ body }) => body.client2)).size, 1);
    for (const room of [creator, joiner]) assert.ok(room.credentials().member && room.credentials().ref);
    assert.equal((await joiner.status()).accepted, true);
  });

  test("another call with the same code repeats an accept that may have worked", async () => {
    const code = JoinCode.random();
    await client.create({ code });
    plan("lose", busy(429, 100), null);
    await fails(unsure.accept({ code }), { kind: "exhausted", retryAfter: 100 });
    await unsure.accept({ code });
    assert.equal(new Set(seen.map(({ body }) => body.client2)).size, 1);
    // An answered accept is over: the next one is another client's.
    plan(null);
    await fails(unsure.accept({ code }), { code: "room_already_accepted" });
  });

  test("other calls are not repeated after a lost answer", async () => {
    const code = JoinCode.random();
    const room = await unsure.create({ code: (plan(null), code) });
    for (const call of [() => room.replaceToken(newToken()), () => room.reportPresence(), () => room.status(), () => room.close()]) {
      plan("lose", null);
      await fails(call(), { kind: "unreachable", code: "network" });
      assert.equal(seen.length, 1);
    }
  });

  test("429 and 503 are repeated after Retry-After, unless that is too long", async () => {
    const code = JoinCode.random();
    plan(busy(503, 1), null);
    const room = await unsure.create({ code });
    assert.ok(seen[1].at - seen[0].at >= 1000);
    plan(busy(429, 2), null);
    assert.equal((await room.status()).accepted, false);
    assert.ok(seen[1].at - seen[0].at >= 2000);
    plan(busy(503, 120));
    await fails(room.status(), { kind: "unavailable", code: "overloaded", status: 503, retryAfter: 120 });
    assert.equal(seen.length, 1);
  });

  test("Retry-After may be a date", async () => {
    const room = unsure.room((await makeRoom())[0].credentials());
    const at = new Date(Date.now() + 120_000);
    const [, day, month, year, time] = at.toUTCString().split(" ");
    const [short, long] = ["short", "long"].map((weekday) => at.toLocaleDateString("en-US", { weekday, timeZone: "UTC" }));
    for (const date of [
      at.toUTCString(), `${long}, ${day}-${month}-${year.slice(2)} ${time} GMT`,
      `${short} ${month} ${String(Number(day)).padStart(2)} ${time} ${year}`,
    ]) {
      plan(busy(503, date));
      const { retryAfter } = await room.status().then(assert.fail, (error) => error);
      assert.ok(retryAfter > 60 && retryAfter <= 121, `${date}: ${retryAfter}`);
    }
    plan(busy(503, "Sun, 06 Nov 1994 08:49:37 GMT"), null);
    await room.status();
    assert.equal(seen.length, 2);
    // Other text is ignored: a wait of an hour would end the call.
    for (const nonsense of ["soon", "-1", "120x", "2099-01-01T00:00:00Z", "Sun, 06 Xyz 2099 08:49:37 GMT"]) {
      plan(busy(503, nonsense), null);
      await room.status();
      assert.equal(seen.length, 2, nonsense);
    }
  });

  test("a foreign answer is no room", async () => {
    plan({ status: 200, body: "<html>" });
    await fails(client.room.call(unsure, (await makeRoom())[0].credentials()).status(), { kind: "foreign", code: "foreign_answer", status: 200 });
  });

  test("a proxy without a broker is reported at once", async () => {
    plan({ status: 503, body: "<html>" });
    await fails(unsure.create({ code: JoinCode.random() }), { kind: "foreign", status: 503 });
    assert.equal(seen.length, 1);
  });
});
