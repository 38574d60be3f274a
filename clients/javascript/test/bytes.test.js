import assert from "node:assert/strict";
import { test } from "node:test";
import { inspect } from "node:util";
import { Client, JoinCode, MayflyError, handle, hmacSHA256, nickname, sha256 } from "../mayfly.js";

const bytes = (text) => new Uint8Array(Buffer.from(text));
const unhex = (text) => new Uint8Array(Buffer.from(text, "hex"));
const hex = (array) => Buffer.from(array).toString("hex");

test("SHA-256: the examples of FIPS 180-4", () => {
  const long = "abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopqklmnopqrlmnopqrsmnopqrstnopqrstu";
  for (const [message, digest] of [
    ["", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"],
    ["abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"],
    ["abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"],
    [long, "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1"],
    ["a".repeat(1_000_000), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"],
  ]) assert.equal(hex(sha256(bytes(message))), digest);
});

test("HMAC-SHA256: the examples of RFC 4231", () => {
  for (const [key, data, code] of [
    ["0b".repeat(20), hex(bytes("Hi There")), "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"],
    [hex(bytes("Jefe")), hex(bytes("what do ya want for nothing?")), "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"],
    ["aa".repeat(20), "dd".repeat(50), "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe"],
    ["0102030405060708090a0b0c0d0e0f10111213141516171819", "cd".repeat(50), "82558a389a443c0ea4cc819899f2083a85f0faa3e578f8077a2e3ff46729665b"],
    ["aa".repeat(131), hex(bytes("Test Using Larger Than Block-Size Key - Hash Key First")),
      "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"],
  ]) assert.equal(hex(hmacSHA256(unhex(key), unhex(data))), code);
});

// Computed with the Python program of docs/rooms.md.
const ROOMID = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8";
const HANDLES = { 1: "kpZxZVdAzWV_BSDkORyX7g", 2: "uQCg40oLF2oDiJw40pqPDQ" };

test("handles and nicknames", () => {
  for (const side of [1, 2]) assert.equal(handle({ roomid: ROOMID, side }), HANDLES[side]);
  const rooms = [[{ roomid: ROOMID, side: 2 }, "Ann"], [{ roomid: ROOMID, side: 1 }, "Ben"]];
  assert.equal(nickname({ roomId: HANDLES[1] }, rooms), "Ben");
  assert.equal(nickname({ roomId: "AAAAAAAAAAAAAAAAAAAAAA" }, rooms), undefined);
  assert.equal(nickname({}, rooms), undefined);
});

test("join codes are random, readable and tolerant", () => {
  const codes = Array.from({ length: 2000 }, () => JoinCode.random());
  const letters = new Set(codes.flatMap((code) => [...code.text]));
  assert.equal([...letters].sort().join(""), "0123456789ABCDEFGHJKMNPQRSTVWXYZ");
  assert.equal(new Set(codes.map((code) => code.text)).size, 2000);
  for (const code of codes.slice(0, 50)) {
    assert.match(code.display, /^[0-9A-Z]{5}-[0-9A-Z]{5}$/);
    assert.equal(code.display.replace("-", ""), code.text);
    for (const typed of [code.display, code.text, code.display.toLowerCase(), ` ${code.display.replace("-", " – ")} `]) {
      assert.equal(JoinCode.parse(typed).text, code.text);
    }
  }
  assert.equal(JoinCode.parse("o0il1-zzzzz").text, "00111ZZZZZ");
  for (const typed of ["", "0123456789A", "012345678", "UUUUU-UUUUU", "01234_56789", "01234-5678é", "ßßßßß", "ſſſſſſſſſſ", null]) {
    assert.equal(JoinCode.parse(typed), null);
  }
});

test("mistakes in the settings are explained", () => {
  const make = (url, options = { environment: "sandbox" }) => () => new Client(url, options);
  for (const url of ["", "push.example.org", "ftp://push.example.org", "https://push.example.org?x", "https://me@push.example.org", undefined]) {
    assert.throws(make(url), { name: "MayflyError", kind: "invalid", code: "invalid_url" });
  }
  for (const url of ["http://push.example.org", "http://127.0.0.1.example.org", "http://localhost.example.org"]) {
    assert.throws(make(url), { code: "cleartext" });
  }
  for (const url of ["https://push.example.org", "https://push.example.org/push/", "http://127.0.0.1:8787", "http://localhost", "http://[::1]:8787"]) {
    make(url)();
  }
  assert.throws(make("https://push.example.org", {}), { code: "invalid_environment" });
  const client = make("https://push.example.org")();
  const good = { roomid: ROOMID, client: "c", side: 1, expiresAt: "2026-01-02T03:04:05Z" };
  client.room(good);
  for (const change of [{ roomid: "x" }, { client: undefined }, { side: 3 }]) {
    assert.throws(() => client.room({ ...good, ...change }), { code: "invalid_credentials" });
  }
});

test("without a source of randomness nothing works", () => {
  const own = Object.getOwnPropertyDescriptor(globalThis, "crypto");
  for (const value of [undefined, {}]) {
    Object.defineProperty(globalThis, "crypto", { value, configurable: true });
    try {
      assert.throws(() => new Client("https://push.example.org", { environment: "sandbox" }), { code: "no_random" });
      assert.throws(() => JoinCode.random(), { code: "no_random" });
    } finally {
      Object.defineProperty(globalThis, "crypto", own);
    }
  }
});

test("no secret is shown by accident", () => {
  const secrets = { roomid: ROOMID, client: "client-secret", member: "M".repeat(43), ref: "ab".repeat(16) };
  const room = new Client("https://push.example.org", { environment: "sandbox" }).room({ ...secrets, side: 1, expiresAt: "2026-01-02T03:04:05Z" });
  assert.deepEqual(room.credentials(), { ...secrets, side: 1, expiresAt: "2026-01-02T03:04:05Z" });
  const code = JoinCode.random();
  const own = { WebSocket: globalThis.WebSocket };
  globalThis.WebSocket = class { close() {} };
  const session = room.join();
  session.leave();
  globalThis.WebSocket = own.WebSocket;
  for (const value of [room, code, session, { room, code, session }]) {
    const owned = Object.getOwnPropertyNames(value).map((name) => value[name]);
    const shown = [inspect(value, { depth: 9, showHidden: true }), String(value), JSON.stringify(value), JSON.stringify(owned)].join();
    for (const secret of [...Object.values(secrets), code.text, code.display]) assert.ok(!shown.includes(secret), shown);
  }
  assert.equal(new MayflyError("gone", "room_not_found", "text").name, "MayflyError");
});
