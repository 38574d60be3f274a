// Client of Mayfly's rooms for browsers, React Native and Node. mayfly.d.ts documents what is exported for apps; the rest is for accounts.js.
// Secrets are in private fields and closures, so that no log, JSON or inspector prints them.

const REQUEST_MS = 20_000; // A request without an answer for so long is lost.
const RETRY_MS = 30_000; // The longest time that one call waits because the broker asks for it.
const LOST_MS = 5_000; // The longest time that create and accept spend on asking again for a lost answer.
const REPEAT_MS = 120_000; // How long the broker repeats an answer to create or accept.
const IDLE_MS = 30_000; // A socket silent for so long is asked for a sign of life,
const ANSWER_MS = 10_000; // which must come within this time.
const LONGEST_WAIT_S = 3_600; // Longer ones are from a wrong clock or a hostile server.
const LARGEST_ANSWER = 65_536; // Bytes. The broker's are far below.
const LARGEST_MESSAGE = 16_384; // Characters of a socket's message.
const LONGEST_TEXT = 1_000; // Characters of an error's text.
const MOST_MESSAGES = 100; // So many messages of a socket in FLOOD_MS. A room's two sides can't cause more.
const FLOOD_MS = 10_000;
const MOST_EVENTS = 64; // The newest events that wait for a reader.
const STEADY_MS = 5_000; // A presence that lasted so long resets the waits between connections.
const BACKOFF_MS = [500, 30_000];

// MARK: Errors

const KINDS = {
  __proto__: null,
  room_not_found: "gone", token_not_found: "gone", device_not_found: "gone", request_not_found: "gone",
  join_code_in_use: "conflict", room_already_accepted: "conflict",
  not_a_member: "unauthorized", member_required: "unauthorized", malformed_capability: "unauthorized",
  no_jwt: "unauthorized", invalid_jwt: "unauthorized", jwt_expired: "unauthorized", another_user: "unauthorized", back_end_only: "unauthorized",
  too_many_requests: "exhausted", too_many_sockets: "exhausted", too_many_registrations: "exhausted",
  storage_unavailable: "unavailable", ledger_unavailable: "unavailable", too_many_pushes: "unavailable", overloaded: "unavailable",
  too_many_connections: "unavailable", jwt_keys_unavailable: "unavailable", shutting_down: "unavailable",
};

const kindOf = (code, status) =>
  KINDS[code] ?? (status === 429 ? "exhausted" : status === 408 || status >= 500 ? "unavailable" : "invalid");

// The errors of a connection that was never made. Only Node has them: a browser doesn't say why it failed.
const UNSENT = /^(ECONNREFUSED|ENOTFOUND|EAI_AGAIN|EHOSTUNREACH|ENETUNREACH|UND_ERR_CONNECT_TIMEOUT|CERT_|ERR_TLS_|ERR_SSL_|DEPTH_ZERO_|SELF_SIGNED_|UNABLE_TO_)/;

export class MayflyError extends Error {
  constructor(kind, code, message, { status = 0, retryAfter, field } = {}) {
    super(message);
    Object.assign(this, { name: "MayflyError", kind, code, status, retryAfter, field });
  }
}

export const invalid = (code, message) => new MayflyError("invalid", code, message);

/** The error of an answer or a message that Mayfly doesn't send. */
function foreign(status, retryAfter) {
  const isRedirect = status === 0 || (status >= 300 && status < 400);
  const message = isRedirect
    ? "The server redirects to another address, which Mayfly never does. Use the broker's final address."
    : `The answer is not Mayfly's (status ${status}). Check the broker's address, and the proxy before it: behind a proxy, the broker may be down.`;
  return new MayflyError("foreign", "foreign_answer", message, { status, retryAfter });
}

const bounded = (seconds) => (seconds >= 0 ? Math.min(seconds, LONGEST_WAIT_S) : undefined);

const MONTHS = { __proto__: null, Jan: 0, Feb: 1, Mar: 2, Apr: 3, May: 4, Jun: 5, Jul: 6, Aug: 7, Sep: 8, Oct: 9, Nov: 10, Dec: 11 };

/** Returns unix ms of a date in one of the three forms of RFC 9110 section 5.6.7, or NaN. Date.parse reads the last one as local time. */
function timeOf(said) {
  const [, day, month, years, h, m, s] =
    /^[A-Z][a-z]+, (\d\d)[ -]([A-Z][a-z]{2})[ -](\d{4}|\d\d) (\d\d):(\d\d):(\d\d) GMT$/.exec(said) ?? [];
  if (day) {
    const now = new Date().getUTCFullYear();
    let year = years.length === 4 ? +years : 2100 + +years;
    while (years.length === 2 && year > now + 50) year -= 100;
    return Date.UTC(year, MONTHS[month], day, h, m, s);
  }
  const ansi = /^[A-Z][a-z]{2} ([A-Z][a-z]{2}) +(\d{1,2}) (\d\d):(\d\d):(\d\d) (\d{4})$/.exec(said);
  return ansi ? Date.UTC(ansi[6], MONTHS[ansi[1]], ...ansi.slice(2, 6)) : NaN;
}

/** Returns the seconds of a `Retry-After` (RFC 9110 section 10.2.3), or undefined. */
function secondsOf(said) {
  if (/^\d+$/.test(said)) return bounded(Number(said));
  return bounded(Math.max(0, Math.ceil((timeOf(said) - Date.now()) / 1000)));
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

// The types of what is read. Later brokers may send more fields, and other words.

export const isString = (value) => typeof value === "string";
export const isBoolean = (value) => typeof value === "boolean";
export const isNumber = (value) => Number.isFinite(value);
export const matching = (pattern) => (value) => isString(value) && pattern.test(value);
export const optional = (isRight) => (value) => value === undefined || isRight(value);
export const isWord = matching(/^[a-z_]{1,64}$/);
export const isID = matching(/^[\w-]{43}$/);
export const isRef = matching(/^[0-9a-f]{32}$/);
const isKey = matching(/^B[\w-]{86}$/); // An uncompressed point on P-256.
export const isTime = (value) => isString(value) && /^\d{4}-\d\d-\d\dT/.test(value) && !Number.isNaN(Date.parse(value));

export const has = (value, shape) => typeof value === "object" && value !== null && Object.entries(shape).every(([name, isRight]) => isRight(value[name]));

const PROBLEM = { code: isWord, detail: isString, field: optional(isString) };
const MEMBERSHIP = { roomid: isID, member: optional(isID), ref: optional(isRef), expiresAt: isTime, joinExpiresAt: optional(isTime) };
const STATUS = {
  expiresAt: isTime, accepted: isBoolean, creatorPresent: isBoolean, joinerPresent: isBoolean, creatorHasToken: isBoolean, joinerHasToken: isBoolean,
};
const WEB_PUSH = { applicationServerKey: isKey, previous: optional(isKey), longest: isNumber };
const ERROR = { code: isWord, error: isString, retryAfterSeconds: optional(isNumber) };
const MESSAGES = {
  __proto__: null,
  joined: { expiresAt: isTime, peerPresent: isBoolean, delivery: isWord },
  peer_left: { delivery: optional(isWord) },
};

/** Returns the bytes of an answer's body as text, or undefined if they are too many or no UTF-8. React Native can't read a body in parts. */
async function textOf(answer) {
  const reader = answer.body?.getReader?.();
  if (!reader) {
    const text = await answer.text();
    return text.length > LARGEST_ANSWER ? undefined : text;
  }
  const bytes = new Uint8Array(LARGEST_ANSWER);
  for (let count = 0; ;) {
    const { value, done } = await reader.read();
    if (done) {
      try {
        return new TextDecoder("utf-8", { fatal: true }).decode(bytes.subarray(0, count));
      } catch {
        return undefined;
      }
    }
    if (count + value.length > LARGEST_ANSWER) {
      reader.cancel().catch(() => {});
      return undefined;
    }
    bytes.set(value, count);
    count += value.length;
  }
}

/** True if nobody knows whether the request took effect: the answer was lost, or is only a proxy's. */
const isLost = (error) => (error.kind === "unreachable" ? !error.isUnsent : error.kind === "foreign" && error.status >= 500 && error.status !== 503);

/** Returns the error of a request without an answer. */
function unreachable(isLate, { cause }) {
  if (isLate) return new MayflyError("unreachable", "timeout", "The broker did not answer in time. Try again.");
  const error = new MayflyError(
    "unreachable", "network", "The broker can't be reached, or hides its answer from this page. Check the network, the broker's address and --cors-origins.");
  const isUnsent = globalThis.navigator?.onLine === false || [cause, ...(cause?.errors ?? [])].some((one) => UNSENT.test(one?.code));
  return Object.defineProperty(error, "isUnsent", { value: isUnsent });
}

/** Returns what a call throws once its caller has aborted it. React Native's signals have no reason. */
const abortOf = (signal) => signal.reason ?? Object.assign(new Error("The call was aborted."), { name: "AbortError" });

/** Returns what was promised, or throws once the signal is aborted. */
export async function orAborted(promise, signal) {
  let stop;
  const aborted = new Promise((_, reject) => {
    stop = () => reject(abortOf(signal));
    if (signal?.aborted) stop();
  });
  signal?.addEventListener("abort", stop);
  try {
    return await Promise.race([promise, aborted]);
  } finally {
    signal?.removeEventListener("abort", stop);
  }
}

/** Waits, or throws once the signal is aborted. */
const pause = (ms, signal) => new Promise((resolve, reject) => {
  if (signal?.aborted) return reject(abortOf(signal));
  const stop = () => {
    clearTimeout(timer);
    reject(abortOf(signal));
  };
  const timer = setTimeout(() => {
    signal?.removeEventListener("abort", stop);
    resolve();
  }, ms);
  signal?.addEventListener("abort", stop, { once: true });
});

// MARK: Bytes. React Native has neither crypto.subtle, TextEncoder nor btoa everywhere, so these are written out.

const BASE64URL = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

export function toBase64URL(bytes) {
  let [text, held, bits] = ["", 0, 0];
  for (const byte of bytes) {
    held = (held << 8) | byte;
    for (bits += 8; bits >= 6; bits -= 6) text += BASE64URL[(held >> (bits - 6)) & 63];
    held &= 255;
  }
  return bits ? text + BASE64URL[(held << (6 - bits)) & 63] : text;
}

export function fromBase64URL(text) {
  const bytes = new Uint8Array((text.length * 6) >> 3);
  let [held, bits, count] = [0, 0, 0];
  for (const letter of text) {
    held = ((held << 6) | BASE64URL.indexOf(letter)) & 0xffff;
    bits += 6;
    if (bits >= 8) bytes[count++] = held >> (bits -= 8);
  }
  return bytes;
}

export function random(count) {
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

const joinidOf = (code) => (code instanceof JoinCode ? code.text : code);

/** The key of a client's part for accounts.js. */
export const internals = Symbol("internals");

/** A token with its environment and app. A browser's subscription belongs to neither. */
export const withApp = (name, token, app) => (typeof token === "object" && token !== null ? { [name]: token } : { [name]: token, ...app });

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

  get url() { return this.#url; }
  get [internals]() { return { app: this.#app, call: (...call) => this.#call(...call) }; }

  async pushServices({ signal } = {}) {
    const shape = { webPush: optional((value) => value !== null && has(value, WEB_PUSH)) };
    const { webPush } = await this.#call("GET", "/api/push", { shape, signal });
    return { webPush };
  }

  async create({ code, token, expiresInSeconds, joinExpiresInSeconds, signal } = {}) {
    const body = { joinid: joinidOf(code), expiresInSeconds, joinExpiresInSeconds, ...withApp("client1_token", token, this.#app) };
    return this.#room({ ...await this.#enter("/api/rooms", "client1", body, signal), side: 1 });
  }

  async accept({ code, token, signal } = {}) {
    const body = { joinid: joinidOf(code), ...withApp("client2_token", token, this.#app) };
    return this.#room({ ...await this.#enter("/api/rooms/accept", "client2", body, signal), side: 2 });
  }

  room(credentials) {
    const { client, side } = credentials ?? {};
    if (!has(credentials ?? undefined, MEMBERSHIP) || !isString(client) || (side !== 1 && side !== 2)) {
      throw invalid("invalid_credentials", "These are no credentials of a room. Pass what Room.credentials() returned.");
    }
    return this.#room(credentials);
  }

  #room(membership) {
    return new Room(membership, this.#url, this.#app, (...call) => this.#call(...call));
  }

  /** Creates or accepts. A repeat after a lost answer must have the client id of the first try. */
  async #enter(path, name, body, signal) {
    const key = `${path} ${body.joinid}`;
    for (const [old, { until }] of this.#unanswered) if (until < Date.now()) this.#unanswered.delete(old);
    const entry = this.#unanswered.get(key) ?? { client: toBase64URL(random(16)), until: Date.now() + REPEAT_MS };
    this.#unanswered.set(key, entry);
    try {
      const made = await this.#call("POST", path, { body: { ...body, [name]: entry.client }, shape: MEMBERSHIP, mayRepeat: true, signal });
      this.#unanswered.delete(key);
      return { ...made, client: entry.client };
    } catch (error) {
      // After any other error the first try may have worked, and its answer been lost.
      if (["invalid", "unauthorized", "gone", "conflict"].includes(error.kind)) this.#unanswered.delete(key);
      throw error;
    }
  }

  /** Sends a request. Repeats it if the broker asks for that, and after a lost answer only if that can't do another thing. */
  async #call(method, path, { bearer, body, shape, signal, mayRepeat = false }) {
    const start = Date.now();
    for (let attempt = 0; ; attempt++) {
      try {
        return await this.#send(method, path, bearer, body, shape, signal);
      } catch (error) {
        let [wait, longest] = [Infinity, RETRY_MS];
        if (error.status === 429 || error.status === 503) {
          // A proxy that names no time may stay without a broker for long.
          wait = 1000 * ((error.retryAfter ?? (error.kind === "foreign" ? Infinity : 5)) + Math.random());
        } else if (mayRepeat && isLost(error)) {
          [wait, longest] = [backoff(attempt), LOST_MS];
        }
        if (Date.now() + wait > start + longest) throw error;
        await pause(wait, signal);
      }
    }
  }

  async #send(method, path, bearer, body, shape, signal) {
    const json = body && JSON.stringify(body);
    if (signal?.aborted) throw abortOf(signal);
    const abort = new AbortController();
    const stop = () => abort.abort();
    let isLate = false;
    const timer = setTimeout(() => {
      isLate = true;
      stop();
    }, REQUEST_MS);
    signal?.addEventListener("abort", stop);
    let answer, text;
    try {
      answer = await fetch(this.#url + path, {
        method, signal: abort.signal, body: json, credentials: "omit", redirect: "manual", referrerPolicy: "no-referrer",
        headers: { ...(body && { "Content-Type": "application/json" }), ...(bearer && { Authorization: `Bearer ${bearer}` }) },
      });
      text = await textOf(answer);
    } catch (error) {
      if (signal?.aborted) throw abortOf(signal);
      // Without the runtime's error: it may have bytes of the answer.
      throw unreachable(isLate, error);
    } finally {
      clearTimeout(timer);
      signal?.removeEventListener("abort", stop);
    }
    const [type, said] = [answer.headers.get("Content-Type") ?? "", text === undefined ? undefined : objectOf(text)];
    if (answer.ok && /^application\/json\b/i.test(type) && has(said, shape)) return said;
    const [status, retryAfter] = [answer.status, secondsOf(answer.headers.get("Retry-After"))];
    if (answer.ok || !/^application\/problem\+json\b/i.test(type) || !has(said, PROBLEM)) throw foreign(status, retryAfter);
    throw new MayflyError(kindOf(said.code, status), said.code, said.detail.slice(0, LONGEST_TEXT), { status, retryAfter, field: said.field });
  }
}

// MARK: A room

class Room {
  #membership;
  #app;
  #call;

  constructor({ roomid, client, member, side, ref, expiresAt, joinExpiresAt }, broker, app, call) {
    this.#membership = { roomid, client, member, side, ref, expiresAt };
    this.side = side;
    this.expiresAt = new Date(expiresAt);
    if (joinExpiresAt) this.joinExpiresAt = new Date(joinExpiresAt);
    this.broker = broker;
    [this.#app, this.#call] = [app, call];
  }

  credentials() { return { ...this.#membership }; }
  get handle() { return handle(this.#membership); }

  async status({ signal } = {}) {
    const room = await this.#send("GET", "/api/room", { shape: STATUS, signal });
    const creator = { isPresent: room.creatorPresent, hasToken: room.creatorHasToken };
    const joiner = { isPresent: room.joinerPresent, hasToken: room.joinerHasToken };
    const [own, peer] = this.side === 1 ? [creator, joiner] : [joiner, creator];
    return { expiresAt: new Date(room.expiresAt), accepted: room.accepted, own, peer };
  }

  async replaceToken(token, { signal } = {}) {
    const body = withApp("token", token, this.#app);
    const { ref } = await this.#send("PUT", "/api/room/token", { body, shape: { ref: isRef, expiresAt: isTime }, signal });
    this.#membership.ref = ref;
  }

  async withdrawToken({ signal } = {}) {
    await this.#send("DELETE", "/api/room/token", { body: {}, shape: { purged: isNumber }, signal });
    this.#membership.ref = undefined;
  }

  async reportPresence({ signal } = {}) { return this.#report({}, signal); }
  async reportLeaving({ signal } = {}) { await this.#report({ leaving: true }, signal); }
  async testPush({ signal } = {}) { return this.#report({}, signal, "/api/push/test"); }
  async close({ signal } = {}) { await this.#send("DELETE", "/api/room", { shape: { purged: isNumber }, signal }); }

  async #report(body, signal, path = "/api/room/presence") {
    return (await this.#send("POST", path, { body, shape: { delivery: isWord }, signal })).delivery;
  }

  join({ appState } = {}) {
    const { roomid, client, member } = this.#membership;
    const hello = JSON.stringify({ type: "join_room", roomid, client, member });
    return new Session(this.broker, { ...PRESENCE, hello: () => hello }, appState);
  }

  /** Sends a call about this side. Calls without a body are about the room. */
  #send(method, path, { body, ...rest }) {
    const { roomid, client, member } = this.#membership;
    return this.#call(method, path, { ...rest, bearer: roomid, body: body && { client, member, ...body } });
  }
}

// MARK: Sessions over a WebSocket

/** What is said in a room. */
const PRESENCE = {
  path: "/ws",
  goodbye: '{"type":"leave_room"}',
  shapes: MESSAGES,
  most: MOST_MESSAGES,
  hear(message) {
    switch (message.type) {
      case "joined": {
        const { type, expiresAt, peerPresent, delivery } = message;
        return { isConnected: true, event: { type, expiresAt: new Date(expiresAt), peerPresent, delivery } };
      }
      case "peer_joined":
      case "peer_accepted": return { event: { type: message.type } };
      case "peer_left": return { event: { type: message.type, delivery: message.delivery } };
      case "room_closed": return { event: { type: message.type }, isLast: true };
      case "error": return kindOf(message.code) === "gone" ? { event: { type: "room_gone" }, isLast: true } : { refusal: message };
    }
  },
};

/** Returns the error that a socket's `error` message reports. */
export const refusalOf = ({ code, error, retryAfterSeconds }) =>
  new MayflyError(kindOf(code), code, error.slice(0, LONGEST_TEXT), { retryAfter: bounded(retryAfterSeconds) });

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

/**
 * Keeps a socket open. A dialogue has the socket's `path`, a `hello()`, which may be promised, and a `goodbye`, shapes of messages, how many may come in
 * FLOOD_MS, and `hear(message)`. That returns an event, and whether it is the last one, makes the session connected, or is a refusal.
 */
export class Session {
  #url;
  #dialogue;
  #unsent = [];
  #socket;
  #hasJoined = false;
  #joinedAt = 0;
  #isAway = false;
  /** Whether the app's last event says that the connection is lost. */
  #isLost = false;
  #hasEnded = false;
  #failure;
  #attempt = 0;
  #retryAfterMs = 0;
  #retry;
  #watch;
  #events = [];
  #readers = [];
  #received = 0;
  #receivedSince = 0;
  #endLifeCycle = () => {};

  constructor(broker, dialogue, appState) {
    if (!globalThis.WebSocket) throw invalid("no_websocket", "WebSocket is missing. Use Node 22 or later, or report presence over HTTP.");
    [this.#url, this.#dialogue] = [broker.replace(/^http/, "ws") + dialogue.path, dialogue];
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
    else if (this.#events.push(event) > MOST_EVENTS) this.#events.shift();
  }

  #end(failure) {
    this.#hasEnded = true;
    this.#drop(1000);
    this.#endLifeCycle();
    this.#failure = failure;
    for (const { resolve, reject } of this.#readers.splice(0)) this.next().then(resolve, reject);
  }

  /** Sends a text, once it is connected. */
  send(text) {
    if (this.#hasJoined && this.#socket.readyState === 1) this.#socket.send(text);
    else if (!this.#hasEnded && !this.#isAway && this.#unsent.push(text) > MOST_EVENTS) this.#unsent.shift();
  }

  /** Leaves deliberately: the peer hears of it at once, and nobody is pushed to. */
  #leave() {
    this.#isAway = true;
    // What was meant for now must not be sent hours later.
    this.#unsent = [];
    const { goodbye } = this.#dialogue;
    if (goodbye && this.#socket?.readyState === 1) this.#socket.send(goodbye);
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
    socket.onopen = () => this.#greet(socket);
    socket.onmessage = ({ data }) => { if (socket === this.#socket) this.#receive(data); };
    socket.onclose = () => { if (socket === this.#socket) this.#lose(); };
    this.#expect(ANSWER_MS, () => this.#lose());
  }

  #greet(socket) {
    const send = (hello) => { if (socket === this.#socket && socket.readyState === 1) socket.send(hello); };
    const hello = this.#dialogue.hello();
    if (isString(hello)) return send(hello);
    hello.then(send).catch(() => { if (socket === this.#socket) this.#lose(); });
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
    // A proxy that drops each socket once it has joined must not be asked twice a second.
    if (this.#hasJoined && Date.now() - this.#joinedAt > STEADY_MS) this.#attempt = 0;
    if (!this.#isLost) this.#emit({ type: "disconnected" });
    this.#isLost = true;
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

  /** Returns a message of a known shape, or undefined. Whatever this throws would end a Node process. */
  #read(data) {
    const now = Date.now();
    if (now - this.#receivedSince > FLOOD_MS) [this.#receivedSince, this.#received] = [now, 0];
    if (++this.#received > this.#dialogue.most || !isString(data) || data.length > LARGEST_MESSAGE) return undefined;
    const message = objectOf(data);
    return isString(message?.type) && has(message, message.type === "error" ? ERROR : this.#dialogue.shapes[message.type] ?? {}) ? message : undefined;
  }

  #receive(data) {
    const message = this.#read(data);
    if (!message) return this.#end(foreign(101));
    if (this.#hasJoined) this.#expect(IDLE_MS, () => this.#ask());
    const { isConnected, event, isLast, refusal } = this.#dialogue.hear(message) ?? {};
    if (refusal) return this.#refused(refusal);
    if (isConnected) {
      [this.#hasJoined, this.#isLost, this.#joinedAt] = [true, false, Date.now()];
      this.#expect(IDLE_MS, () => this.#ask());
      for (const text of this.#unsent.splice(0)) this.send(text);
    }
    if (event) this.#emit(event);
    if (isLast) this.#end();
  }

  /** The broker closes the socket after such an error. */
  #refused(refusal) {
    const error = refusalOf(refusal);
    // A cached JWT may end on its way. The next socket asks for another.
    if (error.code !== "jwt_expired" && error.kind !== "exhausted" && error.kind !== "unavailable") return this.#end(error);
    this.#retryAfterMs = 1000 * (error.retryAfter ?? 0);
    this.#lose();
  }
}
