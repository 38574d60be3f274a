// Client of Mayfly's rooms for browsers, React Native and Node 22 or later. mayfly.d.ts documents what is exported.
// Secrets are in private fields and closures, so that no log, JSON or inspector prints them.

const REQUEST_MS = 20_000; // A request without an answer for so long is lost.
const RETRY_MS = 30_000; // The longest time that one call spends on retries.
const REPEAT_MS = 120_000; // How long the broker repeats an answer to create or accept.
const IDLE_MS = 30_000; // A socket silent for so long is asked for a sign of life,
const ANSWER_MS = 10_000; // which must come within this time.
const LONGEST_WAIT_S = 3_600; // Longer ones are from a wrong clock or a hostile server.
const LARGEST_ANSWER = 65_536; // Characters. The broker's are far below.
const STEADY_MS = 5_000; // A presence that lasted so long resets the waits between connections.
const BACKOFF_MS = [500, 30_000];

// MARK: Errors

const KINDS = {
  __proto__: null,
  room_not_found: "gone",
  join_code_in_use: "conflict", room_already_accepted: "conflict",
  not_a_member: "unauthorized", member_required: "unauthorized", malformed_capability: "unauthorized",
  too_many_requests: "exhausted", too_many_sockets: "exhausted",
  storage_unavailable: "unavailable", ledger_unavailable: "unavailable", too_many_pushes: "unavailable", overloaded: "unavailable",
  too_many_connections: "unavailable", shutting_down: "unavailable",
};

const kindOf = (code, status) =>
  KINDS[code] ?? (status === 429 ? "exhausted" : status === 408 || status >= 500 ? "unavailable" : "invalid");

export class MayflyError extends Error {
  constructor(kind, code, message, { status = 0, retryAfter, field } = {}) {
    super(message);
    Object.assign(this, { name: "MayflyError", kind, code, status, retryAfter, field });
  }
}

const invalid = (code, message) => new MayflyError("invalid", code, message);

/** Returns seconds to wait from what a server said, or undefined. */
function secondsOf(said) {
  const seconds = parseInt(said, 10);
  return seconds >= 0 ? Math.min(seconds, LONGEST_WAIT_S) : undefined;
}

/** Returns the error of an answer. Proxies answer with other bodies than the broker. */
function errorOf(status, retryAfter, problem) {
  const code = typeof problem?.code === "string" ? problem.code : `http_${status}`;
  const message = problem?.detail ?? `The server answered ${status}. Check the address of the broker, or try again later.`;
  return new MayflyError(kindOf(code, status), code, message, { status, retryAfter, field: problem?.field });
}

/** Returns the JSON object in a text, or undefined. */
function objectOf(text) {
  try {
    const value = JSON.parse(text);
    return typeof value === "object" && value !== null && !Array.isArray(value) ? value : undefined;
  } catch {
    return undefined;
  }
}

/** Returns an answer's body. Throws if it is too large. React Native can't read one in parts. */
async function textOf(answer) {
  const reader = answer.body?.getReader?.();
  if (!reader) return answer.text();
  const decoder = new TextDecoder();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return text + decoder.decode();
    text += decoder.decode(value, { stream: true });
    if (text.length > LARGEST_ANSWER) {
      await reader.cancel();
      throw new Error("too large");
    }
  }
}

/** True if nobody knows whether the request took effect: there was no answer, or only a proxy's. */
const isLost = (error) => error.code === "network" || error.code === "timeout" || (error.status >= 500 && error.status !== 503);

// MARK: Bytes. React Native has neither crypto.subtle, TextEncoder nor btoa everywhere, so these are written out.

const BASE64URL = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

function toBase64URL(bytes) {
  let [text, held, bits] = ["", 0, 0];
  for (const byte of bytes) {
    held = (held << 8) | byte;
    for (bits += 8; bits >= 6; bits -= 6) text += BASE64URL[(held >> (bits - 6)) & 63];
    held &= 255;
  }
  return bits ? text + BASE64URL[(held << (6 - bits)) & 63] : text;
}

function fromBase64URL(text) {
  const bytes = new Uint8Array((text.length * 6) >> 3);
  let [held, bits, count] = [0, 0, 0];
  for (const letter of text) {
    held = ((held << 6) | BASE64URL.indexOf(letter)) & 0xffff;
    bits += 6;
    if (bits >= 8) bytes[count++] = held >> (bits -= 8);
  }
  return bytes;
}

function random(count) {
  if (!globalThis.crypto?.getRandomValues) {
    throw new MayflyError(
      "invalid", "no_random", "crypto.getRandomValues is missing, and Mayfly needs real randomness. On React Native import react-native-get-random-values.");
  }
  return globalThis.crypto.getRandomValues(new Uint8Array(count));
}

const PRIMES = [];
for (let n = 2; PRIMES.length < 64; n++) if (PRIMES.every((prime) => n % prime)) PRIMES.push(n);
const fraction = (root) => ((root - Math.floor(root)) * 2 ** 32) | 0;
const ROUNDS = PRIMES.map((prime) => fraction(Math.cbrt(prime)));
const START = PRIMES.slice(0, 8).map((prime) => fraction(Math.sqrt(prime)));

/** SHA-256 (FIPS 180-4) of a Uint8Array. Exported for tests. */
export function sha256(message) {
  const blocks = new Uint8Array(((message.length + 72) >> 6) << 6);
  blocks.set(message);
  blocks[message.length] = 0x80;
  const view = new DataView(blocks.buffer);
  view.setUint32(blocks.length - 8, Math.floor(message.length / 2 ** 29));
  view.setUint32(blocks.length - 4, message.length << 3);
  const [state, words] = [Int32Array.from(START), new Int32Array(64)];
  const turn = (word, bits) => (word >>> bits) | (word << (32 - bits));
  for (let block = 0; block < blocks.length; block += 64) {
    for (let i = 0; i < 16; i++) words[i] = view.getInt32(block + 4 * i);
    for (let i = 16; i < 64; i++) {
      const [w15, w2] = [words[i - 15], words[i - 2]];
      words[i] = words[i - 16] + (turn(w15, 7) ^ turn(w15, 18) ^ (w15 >>> 3)) + words[i - 7] + (turn(w2, 17) ^ turn(w2, 19) ^ (w2 >>> 10));
    }
    let [a, b, c, d, e, f, g, h] = state;
    for (let i = 0; i < 64; i++) {
      const first = (h + (turn(e, 6) ^ turn(e, 11) ^ turn(e, 25)) + ((e & f) ^ (~e & g)) + ROUNDS[i] + words[i]) | 0;
      const second = (turn(a, 2) ^ turn(a, 13) ^ turn(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
      [h, g, f, e, d, c, b, a] = [g, f, e, (d + first) | 0, c, b, a, (first + second) | 0];
    }
    [a, b, c, d, e, f, g, h].forEach((word, i) => { state[i] += word; });
  }
  const digest = new DataView(new ArrayBuffer(32));
  state.forEach((word, i) => digest.setInt32(4 * i, word));
  return new Uint8Array(digest.buffer);
}

/** HMAC-SHA256 (RFC 2104) of Uint8Arrays. Exported for tests. */
export function hmacSHA256(key, message) {
  const block = new Uint8Array(64);
  block.set(key.length > 64 ? sha256(key) : key);
  const join = (pad, rest) => Uint8Array.of(...block.map((byte) => byte ^ pad), ...rest);
  return sha256(join(0x5c, sha256(join(0x36, message))));
}

// MARK: Names of rooms in pushes

export function handle({ roomid, side }) {
  const message = Uint8Array.from("mayfly/v1 handleroom", (letter) => letter.charCodeAt(0));
  return toBase64URL(hmacSHA256(fromBase64URL(roomid), Uint8Array.of(...message, side)).subarray(0, 16));
}

export function nickname(payload, rooms) {
  for (const [room, name] of rooms) {
    if (handle(room.credentials?.() ?? room) === payload?.roomId) return name;
  }
  return undefined;
}

// MARK: Join codes

const CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";
const JOINID = /^[0-9A-HJKMNP-TV-Z]{10}$/;

export class JoinCode {
  #joinid;

  constructor(joinid) {
    if (!JOINID.test(joinid)) throw invalid("invalid_join_code", "This is no join code. Use JoinCode.random() or JoinCode.parse().");
    this.#joinid = joinid;
  }

  static random() {
    return new JoinCode(Array.from(random(10), (byte) => CROCKFORD[byte & 31]).join(""));
  }

  static parse(text) {
    const typed = String(text).replace(/[\s\-\u2010-\u2015]/g, "");
    // Some letters become others in upper case, such as SS.
    const plain = /^[0-9a-z]*$/i.test(typed) ? typed.toUpperCase().replace(/O/g, "0").replace(/[IL]/g, "1") : "";
    return JOINID.test(plain) ? new JoinCode(plain) : null;
  }

  get text() { return this.#joinid; }
  get display() { return `${this.#joinid.slice(0, 5)}-${this.#joinid.slice(5)}`; }
}

const ROOMID = /^[\w-]{43}$/;

const joinidOf = (code) => (code instanceof JoinCode ? code.text : code);

// MARK: HTTP

/** Half of each wait is random, so that clients of a broker that restarts don't all return at once. */
const backoff = (attempt) => Math.min(BACKOFF_MS[1], BACKOFF_MS[0] * 2 ** attempt) * (0.5 + Math.random() / 2);

export class Client {
  #url;
  #app;
  /** Client ids of creates and accepts whose answer may be lost. */
  #unanswered = new Map();

  constructor(url, { environment, bundleId } = {}) {
    const [, scheme, host] = /^(https?):\/\/([^/?#@\s]+)(\/[^?#\s]*)?$/.exec(url) ?? [];
    if (!scheme) throw invalid("invalid_url", "The broker's address is no URL. Use https://HOST, without a query or user name.");
    if (scheme === "http" && !/^(localhost|127(\.\d{1,3}){3}|\[::1\])(:\d+)?$/i.test(host)) {
      throw invalid("cleartext", "Push tokens must not travel in cleartext. Use https://; http:// works on this machine only.");
    }
    if (environment !== "sandbox" && environment !== "production") {
      throw invalid("invalid_environment", 'environment must be "sandbox" (builds from Xcode) or "production" (TestFlight, App Store).');
    }
    random(1); // Reports a missing source of randomness now.
    this.#url = url.replace(/\/+$/, "");
    this.#app = { environment, bundleId };
  }

  async create({ code, token, expiresInSeconds, joinExpiresInSeconds } = {}) {
    const body = { joinid: joinidOf(code), client1_token: token, expiresInSeconds, joinExpiresInSeconds, ...this.#app };
    const [client, made] = await this.#enter("/api/rooms", "client1", body);
    return this.#entered({ ...made, client, side: 1 });
  }

  async accept({ code, token } = {}) {
    const [client, made] = await this.#enter("/api/rooms/accept", "client2", { joinid: joinidOf(code), client2_token: token, ...this.#app });
    return this.#entered({ ...made, client, side: 2 });
  }

  room(credentials) {
    const { roomid, client, side } = credentials ?? {};
    if (!ROOMID.test(roomid) || typeof client !== "string" || (side !== 1 && side !== 2)) {
      throw invalid("invalid_credentials", "These are no credentials of a room. Pass what Room.credentials() returned.");
    }
    return this.#room(credentials);
  }

  #entered(membership) {
    // A web server in the broker's place may answer 200 with anything.
    if (!ROOMID.test(membership.roomid)) throw errorOf(502);
    return this.#room(membership);
  }

  #room(membership) {
    return new Room(membership, this.#app, (...call) => this.#call(...call), this.#url.replace(/^http/, "ws") + "/ws");
  }

  /** Creates or accepts. A repeat after a lost answer must have the client id of the first try. */
  async #enter(path, name, body) {
    const key = `${path} ${body.joinid}`;
    for (const [old, { until }] of this.#unanswered) if (until < Date.now()) this.#unanswered.delete(old);
    const entry = this.#unanswered.get(key) ?? { client: toBase64URL(random(16)), until: Date.now() + REPEAT_MS };
    this.#unanswered.set(key, entry);
    try {
      const answer = await this.#call("POST", path, { body: { ...body, [name]: entry.client }, mayRepeat: true });
      this.#unanswered.delete(key);
      return [entry.client, answer];
    } catch (error) {
      // After any other error the first try may have worked, and its answer been lost.
      if (error.kind !== "unavailable" && error.kind !== "exhausted") this.#unanswered.delete(key);
      throw error;
    }
  }

  /** Sends a request. Repeats it if the broker asks for that, and after a lost answer only if that can't do another thing. */
  async #call(method, path, { bearer, body, mayRepeat = false }) {
    const end = Date.now() + RETRY_MS;
    for (let attempt = 0; ; attempt++) {
      try {
        return await this.#send(method, path, bearer, body);
      } catch (error) {
        let wait = Infinity;
        if (error.status === 429 || error.status === 503) wait = 1000 * ((error.retryAfter ?? 5) + Math.random());
        else if (mayRepeat && isLost(error)) wait = backoff(attempt);
        if (Date.now() + wait > end) throw error;
        await new Promise((resolve) => { setTimeout(resolve, wait); });
      }
    }
  }

  async #send(method, path, bearer, body) {
    const abort = new AbortController();
    const timer = setTimeout(() => abort.abort(), REQUEST_MS);
    const json = body && JSON.stringify(body);
    let answer, text;
    try {
      answer = await fetch(this.#url + path, {
        method, signal: abort.signal, body: json, credentials: "omit", redirect: "error", referrerPolicy: "no-referrer",
        headers: { ...(body && { "Content-Type": "application/json" }), ...(bearer && { Authorization: `Bearer ${bearer}` }) },
      });
      text = await textOf(answer);
    } catch {
      // Without the runtime's error: it may have bytes of the answer.
      throw abort.signal.aborted
        ? new MayflyError("unavailable", "timeout", "The broker did not answer in time. Try again.")
        : new MayflyError("unavailable", "network", "The broker can't be reached, or hides its answer from this page. Check the network and --cors-origins.");
    } finally {
      clearTimeout(timer);
    }
    const said = objectOf(text); // Undefined: not from the broker.
    if (answer.ok && said) return said;
    throw errorOf(answer.ok ? 502 : answer.status, secondsOf(answer.headers.get("Retry-After")), answer.ok ? undefined : said);
  }
}

// MARK: A room

class Room {
  #membership;
  #app;
  #call;
  #socketURL;

  constructor({ roomid, client, member, side, ref, expiresAt, joinExpiresAt }, app, call, socketURL) {
    this.#membership = { roomid, client, member, side, ref, expiresAt };
    this.side = side;
    this.expiresAt = new Date(expiresAt);
    if (joinExpiresAt) this.joinExpiresAt = new Date(joinExpiresAt);
    [this.#app, this.#call, this.#socketURL] = [app, call, socketURL];
  }

  credentials() { return { ...this.#membership }; }
  get handle() { return handle(this.#membership); }

  async status() {
    const room = await this.#send("GET", "/api/room");
    const creator = { isPresent: room.creatorPresent, hasToken: room.creatorHasToken };
    const joiner = { isPresent: room.joinerPresent, hasToken: room.joinerHasToken };
    const [own, peer] = this.side === 1 ? [creator, joiner] : [joiner, creator];
    return { expiresAt: new Date(room.expiresAt), accepted: room.accepted, own, peer };
  }

  async replaceToken(token) {
    this.#membership.ref = (await this.#send("PUT", "/api/room/token", { token, ...this.#app })).ref;
  }

  async withdrawToken() {
    await this.#send("DELETE", "/api/room/token", {});
    this.#membership.ref = undefined;
  }

  async reportPresence() { return (await this.#send("POST", "/api/room/presence", {})).delivery; }
  async reportLeaving() { await this.#send("POST", "/api/room/presence", { leaving: true }); }
  async close() { await this.#send("DELETE", "/api/room"); }

  join({ appState } = {}) {
    const { roomid, client, member } = this.#membership;
    return new RoomSession(this.#socketURL, JSON.stringify({ type: "join_room", roomid, client, member }), appState);
  }

  /** Sends a call about this side. Calls without a body are about the room. */
  #send(method, path, body) {
    const { roomid, client, member } = this.#membership;
    return this.#call(method, path, { bearer: roomid, body: body && { client, member, ...body } });
  }
}

// MARK: Presence over a WebSocket

/** Calls `away` when the app is about to be suspended and `back` when it returns. Returns a function that ends this. */
function watchLifeCycle(appState, away, back) {
  if (appState) {
    if (appState.currentState === "background") away();
    // `inactive` is a moment between the two, or a call sheet above the app.
    const watch = appState.addEventListener("change", (state) => (state === "background" ? away() : state === "active" && back()));
    return () => watch.remove();
  }
  const { document, window, matchMedia } = globalThis;
  if (!document?.addEventListener || !window) return () => {};
  // Only phones and tablets suspend a page because it is hidden. Elsewhere it goes on receiving, so it stays.
  const isHidden = () => document.visibilityState === "hidden" && Boolean(matchMedia?.("(pointer: coarse)").matches);
  const show = () => (isHidden() ? away() : back());
  const events = [
    [document, "visibilitychange", show], [document, "freeze", away], [document, "resume", show],
    [window, "pagehide", away], [window, "pageshow", show], [window, "online", show],
  ];
  if (isHidden()) away();
  for (const [target, name, action] of events) target.addEventListener(name, action);
  return () => { for (const [target, name, action] of events) target.removeEventListener(name, action); };
}

class RoomSession {
  #url;
  #hello;
  #socket;
  #hasJoined = false;
  #joinedAt = 0;
  #isAway = false;
  #hasEnded = false;
  #failure;
  #attempt = 0;
  #retryAfterMs = 0;
  #retry;
  #watch;
  #events = [];
  #readers = [];
  #endLifeCycle = () => {};

  constructor(url, hello, appState) {
    if (!globalThis.WebSocket) throw invalid("no_websocket", "WebSocket is missing. Use Node 22 or later, or report presence over HTTP.");
    [this.#url, this.#hello] = [url, hello];
    this.#endLifeCycle = watchLifeCycle(appState, () => this.#leave(), () => this.#return());
    if (!this.#isAway) this.#connect();
  }

  leave() {
    if (this.#hasEnded) return;
    this.#leave();
    this.#end();
  }

  // An engine without this symbol runs `for await` as Babel translates it, which looks for the other name.
  [Symbol.asyncIterator ?? "@@asyncIterator"]() { return this; }

  next() {
    if (this.#events.length) return Promise.resolve({ value: this.#events.shift(), done: false });
    if (this.#failure) {
      const failure = this.#failure;
      this.#failure = undefined;
      return Promise.reject(failure);
    }
    if (this.#hasEnded) return Promise.resolve({ value: undefined, done: true });
    return new Promise((resolve, reject) => { this.#readers.push({ resolve, reject }); });
  }

  async return(value) {
    this.#events = [];
    this.leave();
    return { value, done: true };
  }

  #emit(event) {
    const reader = this.#readers.shift();
    if (reader) reader.resolve({ value: event, done: false });
    else this.#events.push(event);
  }

  #end(failure) {
    this.#hasEnded = true;
    this.#drop(1000);
    this.#endLifeCycle();
    this.#failure = failure;
    for (const { resolve, reject } of this.#readers.splice(0)) this.next().then(resolve, reject);
  }

  /** Leaves deliberately: the peer hears of it at once, and nobody is pushed to. */
  #leave() {
    this.#isAway = true;
    if (this.#socket?.readyState === 1) this.#socket.send('{"type":"leave_room"}');
    this.#drop(1000);
  }

  /** The app or the network is back. A socket that seems open may be dead. */
  #return() {
    this.#isAway = false;
    if (this.#hasEnded) return;
    if (this.#hasJoined) return this.#ask();
    if (!this.#socket) {
      this.#attempt = 0;
      this.#connect();
    }
  }

  #connect() {
    clearTimeout(this.#retry);
    let socket;
    try {
      socket = new WebSocket(this.#url);
    } catch {
      // The address stays refused, for example by a page's content security policy.
      return this.#end(invalid("websocket_refused", "This page or app may not open a WebSocket to the broker. Check its content security policy."));
    }
    this.#socket = socket;
    socket.onopen = () => { if (socket === this.#socket) socket.send(this.#hello); };
    socket.onmessage = ({ data }) => { if (socket === this.#socket) this.#receive(data); };
    socket.onclose = () => { if (socket === this.#socket) this.#lose(); };
    this.#expect(ANSWER_MS, () => this.#lose());
  }

  /** Forgets the socket. What it still reports is ignored. */
  #drop(code) {
    const socket = this.#socket;
    [this.#socket, this.#hasJoined] = [undefined, false];
    clearTimeout(this.#retry);
    clearTimeout(this.#watch);
    if (socket) code ? socket.close(code) : socket.close();
  }

  #lose() {
    if (this.#hasJoined) {
      this.#emit({ type: "disconnected" });
      // A proxy that drops each socket once it has joined must not be asked twice a second.
      if (Date.now() - this.#joinedAt > STEADY_MS) this.#attempt = 0;
    }
    this.#drop();
    this.#retry = setTimeout(() => this.#connect(), Math.max(backoff(this.#attempt++), this.#retryAfterMs));
    this.#retryAfterMs = 0;
  }

  // Signs of life. WebSocket clients answer the broker's pings by themselves, but show none of them.

  #expect(ms, otherwise) {
    clearTimeout(this.#watch);
    this.#watch = setTimeout(otherwise, ms);
  }

  #ask() {
    this.#socket.send('{"type":"ping"}');
    this.#expect(ANSWER_MS, () => this.#lose());
  }

  #receive(data) {
    const message = objectOf(data);
    if (!message) return;
    if (this.#hasJoined) this.#expect(IDLE_MS, () => this.#ask());
    switch (message.type) {
      case "joined":
        this.#hasJoined = true;
        this.#joinedAt = Date.now();
        this.#expect(IDLE_MS, () => this.#ask());
        return this.#emit({ type: "joined", expiresAt: new Date(message.expiresAt), peerPresent: message.peerPresent, delivery: message.delivery });
      case "peer_joined":
      case "peer_accepted": return this.#emit({ type: message.type });
      case "peer_left": return this.#emit({ type: "peer_left", delivery: message.delivery });
      case "room_closed":
        this.#emit({ type: "room_closed" });
        return this.#end();
      case "error": return this.#refused(message);
    }
  }

  /** The broker closes the socket after an error. */
  #refused({ code, error, retryAfterSeconds }) {
    const kind = kindOf(code);
    if (kind === "gone") {
      this.#emit({ type: "room_gone" });
      return this.#end();
    }
    if (kind === "exhausted" || kind === "unavailable") {
      this.#retryAfterMs = 1000 * (secondsOf(retryAfterSeconds) ?? 0);
      return this.#lose();
    }
    this.#end(new MayflyError(kind, code, error, { retryAfter: retryAfterSeconds }));
  }
}
