// Runs the code that README.md prints, unchanged but for the broker's address: it plays Ann, and the test plays Ben.

import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { readFile } from "node:fs/promises";
import { createServer } from "node:http";
import { after, before, test } from "node:test";
import { Accounts } from "../accounts.js";
import { Client, JoinCode } from "../mayfly.js";
import { Broker, eventually, freePort } from "./broker.js";

const README = await readFile(new URL("../README.md", import.meta.url), "utf8");
const blocks = [...README.matchAll(/^```js\n(.*?)^```/gms)].map(([, code]) => code);
const newToken = () => randomBytes(32).toString("hex");
let broker;

before(async () => { broker = await Broker.start({ users: true }); });
after(() => broker.stop());

/** Runs a program with these names defined. The blocks belong together, so later ones begin with what earlier ones made. */
function run(code, names) {
  const program = code.replace("https://push.example.org", broker.url)
    .replace(/\.\/(mayfly|accounts)\.js/g, (file) => new URL(`../${file}`, import.meta.url).href);
  globalThis.names = names;
  const url = `data:text/javascript,${encodeURIComponent(`const { ${Object.keys(names)} } = globalThis.names;\n${program}`)}#${randomBytes(4).toString("hex")}`;
  return import(url);
}

test("the first program makes a room and is told who comes", async () => {
  const [first] = blocks;
  const shown = [];
  const [token, ben] = [newToken(), new Client(broker.url, { environment: "production" })];
  const done = run(first, { token, show: (text) => shown.push(text) });
  const code = await eventually(() => shown[0], "the code");
  assert.match(code, /^[0-9A-Z]{5}-[0-9A-Z]{5}$/);
  await eventually(() => shown.includes("Ben is away (no_token)"), "Ann's arrival");
  const room = await ben.accept({ code: JoinCode.parse(code) });
  const session = room.join();
  assert.equal((await session.next()).value.type, "joined");
  session.leave();
  await eventually(() => shown.includes("Ben left"), "Ben's leaving");
  await room.close();
  await done;
});

test("the second program tells the failures apart", async () => {
  const [, second] = blocks;
  assert.equal(blocks.length, 4); // push.test.js runs the last.
  const client = new Client(broker.url, { environment: "sandbox" });
  const used = JoinCode.random();
  const said = async (caller, code) => {
    const shown = [];
    await run(second, { client: caller, typed: code, show: (text) => shown.push(text) });
    return shown;
  };
  const room = await client.create({ code: used });
  assert.deepEqual(await said(client, used), []);
  assert.deepEqual(await said(client, used), ["This code was used."]);
  assert.deepEqual(await said(client, JoinCode.random()), ["This code has expired."]);
  assert.match((await said(client, "x"))[0], /^The field joinid is out of range/);
  assert.deepEqual(await said(new Client(`http://127.0.0.1:${await freePort()}`, { environment: "sandbox" }), used), ["No connection. Try again."]);
  const page = createServer((_, response) => response.writeHead(404, { "Content-Type": "text/html" }).end("<h1>Not here</h1>")).listen(0, "127.0.0.1");
  await once(page, "listening");
  assert.deepEqual(await said(new Client(`http://127.0.0.1:${page.address().port}`, { environment: "sandbox" }), used), ["This address is not the broker's."]);
  page.close();
  await room.close();
});

test("the third program answers an approval", async () => {
  const [, , third] = blocks;
  const [shown, answers, jwt] = [[], [], await broker.jwt("ann")];
  const show = (text, approve) => {
    shown.push(text);
    if (text === "approved") throw new Error("the app is closed"); // Otherwise it follows for ever.
    if (approve) answers.push(approve());
  };
  const done = run(third, { login: { jwt: () => jwt }, token: newToken(), show });
  const closed = assert.rejects(done, { message: "the app is closed" });
  const backendJWT = await broker.jwt("back-end", "--scope", "broker.notify");
  const backend = new Accounts(new Client(broker.url, { environment: "sandbox" }), () => backendJWT);
  await eventually(async () => {
    await backend.report("session-1", { type: "approval_request" }, { user: "ann" });
    return shown.includes("session-1 asks");
  }, "the question", 10);
  await closed;
  await Promise.all(answers); // The socket's news may come before the answer of the call.
  assert.ok(shown.includes("approved"));
});
