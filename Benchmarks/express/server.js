// The usual way to build it, for comparison: Express and sqlite3, raw tokens in the table, no audit log. As durable as Mayfly:
// WAL with synchronous=FULL, an answer only after the commit.
//   node server.js PORT DATABASE
"use strict";

const { randomBytes } = require("crypto");
const express = require("express");
const sqlite3 = require("sqlite3");

const [port, path] = process.argv.slice(2);
const database = new sqlite3.Database(path);
const perform = (statement, values) =>
  new Promise((resolve, reject) =>
    statement.run(values, function (error) {
      error ? reject(error) : resolve(this.changes);
    }));
// `all` and not `get`, which leaves its statement open and so holds up every checkpoint.
const first = (statement, values) =>
  new Promise((resolve, reject) => statement.all(values, (error, rows) => (error ? reject(error) : resolve(rows[0]))));

const isText = (value, most) => typeof value === "string" && value.length > 0 && value.length <= most;
const isToken = (value) => value === undefined || (isText(value, 200) && /^[0-9a-f]+$/i.test(value));

function serve() {
  const insert = database.prepare(
    "INSERT OR IGNORE INTO rooms (joinid, roomid, client1, client1_token, expires_at) VALUES (?, ?, ?, ?, ?)");
  const find = database.prepare("SELECT roomid, client2, expires_at FROM rooms WHERE joinid = ?");
  const join = database.prepare("UPDATE rooms SET client2 = ?, client2_token = ? WHERE joinid = ? AND client2 IS NULL");

  const app = express();
  app.disable("x-powered-by");
  app.disable("etag");
  app.use(express.json());

  app.post("/api/rooms", async (request, response, next) => {
    try {
      const { joinid, expiresInSeconds, client1, client1_token: token } = request.body;
      if (!isText(joinid, 64) || !isText(client1, 128) || !Number.isInteger(expiresInSeconds) || !isToken(token)) {
        return response.status(400).json({ success: false, error: "bad request" });
      }
      const roomid = randomBytes(32).toString("base64url");
      const expires = Date.now() + expiresInSeconds * 1000;
      if ((await perform(insert, [joinid, roomid, client1, token, expires])) === 0) {
        return response.status(409).json({ success: false, error: "code in use" });
      }
      response.status(201).json({ roomid, expiresAt: new Date(expires).toISOString() });
    } catch (error) {
      next(error);
    }
  });

  app.post("/api/rooms/accept", async (request, response, next) => {
    try {
      const { joinid, client2, client2_token: token } = request.body;
      if (!isText(joinid, 64) || !isText(client2, 128) || !isToken(token)) {
        return response.status(400).json({ success: false, error: "bad request" });
      }
      const room = await first(find, [joinid]);
      if (!room || room.expires_at <= Date.now()) {
        return response.status(404).json({ success: false, error: "no such room" });
      }
      if (room.client2 !== null || (await perform(join, [client2, token, joinid])) === 0) {
        return response.status(409).json({ success: false, error: "already accepted" });
      }
      response.json({ roomid: room.roomid, expiresAt: new Date(room.expires_at).toISOString() });
    } catch (error) {
      next(error);
    }
  });

  app.listen(Number(port), "127.0.0.1", () => console.log("ready"));
}

database.exec(
  `PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;
   CREATE TABLE rooms (
     joinid TEXT PRIMARY KEY, roomid TEXT NOT NULL UNIQUE, client1 TEXT NOT NULL, client1_token TEXT,
     client2 TEXT, client2_token TEXT, expires_at INTEGER NOT NULL);`,
  (error) => {
    if (error) throw error;
    serve();
  });
