// Apps with accounts: companions, monitors and calls, over mayfly.js. accounts.d.ts documents what is exported.
// Secrets are in private fields and closures, so that no log, JSON or inspector prints them.

import {
  Session, fromBase64URL, has, hmacSHA256, internals, invalid, isBoolean, isID, isNumber, isRef, isString, isTime, isWord, matching, optional,
  orAborted, random, refusalOf, toBase64URL, withApp,
} from "./mayfly.js";

const MOST_NEWS = 5_000; // Messages of a socket in ten seconds. Back ends may report hundreds of events at once.

// The shapes of what is read. Later brokers may send more fields, and other words.

const isTrue = (value) => value === true;
const isRegistrationID = matching(/^((tok|lat|voip)_)?[\w-]{22}$/);
const isName = (value) => isString(value) && value.length > 0 && value.length <= 128;
const isCount = (value) => Number.isSafeInteger(value) && value >= 0;
const isFlag = (value) => value === 0 || value === 1;
const each = (shape) => (value) => Array.isArray(value) && value.every((one) => has(one, shape));
const object = (shape) => (value) => has(value, shape);

const DONE = { success: isTrue };
const SEALED = { ref: isRef, expiresAt: isTime, handleKey: isID };
const TOKEN = { ...DONE, ...SEALED, tokenId: isRegistrationID };
const DEVICE = { ...DONE, ...SEALED, deviceId: isRegistrationID };
const KEPT = { ...SEALED, id: isRegistrationID };
const COUNTS = { ...DONE, pushes: isCount, throttled: optional(isCount), skipped: optional(isCount) };
const RECEIPT = { ...COUNTS, requestId: optional(isName), expiresAt: optional(isTime), repeated: optional(isTrue) };
const PRINTED = { ...COUNTS, notification: optional(isWord), ignored: optional(isWord), repeated: optional(isTrue) };
const APPROVAL = { requestId: isName, sessionId: isName, status: isWord, expiresAt: isTime };
const STATUS = { deviceTokenRegistered: isBoolean, liveActivityTokens: each({ activityId: isName, sessionId: isName, registeredAt: isTime }) };
const SETTINGS = {
  notificationsEnabled: "notifications_enabled", onStart: "on_start", onComplete: "on_complete", onFailed: "on_failed", onPaused: "on_paused",
  onMilestone: "on_milestone",
};
const MONITORS = { ...DONE, devices: each({ id: isRegistrationID, ...Object.fromEntries(Object.values(SETTINGS).map((name) => [name, isFlag])) }) };
const TODO = { completed: isCount, total: isCount };
const NEWS = {
  __proto__: null,
  authenticated: { expiresAt: isTime },
  approval_request: { requestId: isName, sessionId: isName, expiresAt: isTime },
  approval_response: { requestId: isName, sessionId: isName, approved: isBoolean },
  approval_timeout: { requestId: isName, sessionId: isName, withdrawn: optional(isTrue) },
  progress_update: { sessionId: isName, data: object({ elapsedSeconds: optional(isNumber), todoProgress: optional(object(TODO)) }) },
  state_change: { sessionId: isName, data: object({ newState: isString, previousState: optional(isString) }) },
};

// MARK: Names

/** Returns bytes of UTF-8. React Native has no TextEncoder everywhere. */
function utf8(text) {
  try {
    return Uint8Array.from(unescape(encodeURIComponent(text)), (letter) => letter.charCodeAt(0));
  } catch {
    throw invalid("invalid_name", "A name has half of a surrogate pair, which is no Unicode. Use another name.");
  }
}

/** Returns a name as a part of a path. URLs resolve dots, also percent-encoded ones. */
function inPath(name) {
  // A forgotten name must not be the name "undefined".
  if (!isString(name) || ["", ".", ".."].includes(name)) {
    throw invalid("invalid_name", "A name that is no text, or empty, \".\" or \"..\", can't be in a URL. Use another name.");
  }
  utf8(name);
  return encodeURIComponent(name);
}

const newID = () => toBase64URL(random(16));

export class Registration {
  #kept;

  constructor(kept) {
    if (!has(kept, KEPT)) throw invalid("invalid_registration", "This is no registration. Pass what Registration.credentials() returned.");
    const { id, ref, expiresAt, handleKey } = kept;
    this.#kept = { id, ref, expiresAt, handleKey };
    this.id = id;
    this.expiresAt = new Date(expiresAt);
  }

  credentials() { return { ...this.#kept }; }

  handle(kind, name) {
    const message = Uint8Array.of(...utf8(`mayfly/v1 handle${kind}`), 0, ...utf8(name));
    return toBase64URL(hmacSHA256(fromBase64URL(this.#kept.handleKey), message).subarray(0, 16));
  }

  name(kind, handle, names) {
    for (const name of names) if (this.handle(kind, name) === handle) return name;
    return undefined;
  }
}

// MARK: Calls

const counts = ({ pushes, throttled = 0, skipped = 0 }) => ({ queued: pushes, throttled, skipped });
const idOf = (registration) => inPath(isString(registration) ? registration : registration?.id ?? "");

export class Accounts {
  #client;
  #jwt;

  constructor(client, jwt) {
    if (!client?.[internals] || typeof jwt !== "function") throw invalid("invalid_accounts", "Pass a Client, and a function that returns the user's JWT.");
    [this.#client, this.#jwt] = [client, jwt];
  }

  // Companions

  async registerDevice(token, options) { return this.#register("/api/push/register", this.#token("deviceToken", token), TOKEN, options); }

  async registerActivity(token, { activityId, sessionId, previous, signal } = {}) {
    const body = { ...this.#token("activityToken", token), activityId, sessionId, previousToken: previous };
    return this.#register("/api/push/live-activity/register", body, TOKEN, { signal });
  }

  async deleteToken(registration, { signal } = {}) {
    await this.#call("DELETE", `/api/push/token/${idOf(registration)}`, { shape: DONE, signal });
  }

  async status({ signal } = {}) {
    const { deviceTokenRegistered, liveActivityTokens } = await this.#call("GET", "/api/push/status", { shape: STATUS, signal });
    const activities = liveActivityTokens.map(({ activityId, sessionId, registeredAt }) => ({ activityId, sessionId, registeredAt: new Date(registeredAt) }));
    return { hasDevice: deviceTokenRegistered, activities };
  }

  async report(sessionId, { type, data }, { user, eventId = newID(), signal } = {}) {
    const body = { type, data, userId: user, eventId };
    const path = `/api/sessions/${inPath(sessionId)}/events`;
    const answer = await this.#call("POST", path, { body, shape: RECEIPT, mayRepeat: true, signal });
    const expiresAt = answer.expiresAt && new Date(answer.expiresAt);
    return { requestId: answer.requestId, expiresAt, pushes: counts(answer), isRepeated: answer.repeated === true };
  }

  async respond(requestId, approved, { device, signal } = {}) {
    const body = { approved, deviceToken: device };
    return (await this.#call("POST", `/api/approval/${inPath(requestId)}/respond`, { body, shape: { success: isBoolean }, signal })).success;
  }

  async approval(id, { signal } = {}) {
    const { requestId, sessionId, status, expiresAt } = await this.#call("GET", `/api/approval/${inPath(id)}`, { shape: APPROVAL, signal });
    return { requestId, sessionId, status, expiresAt: new Date(expiresAt) };
  }

  async clearApproval(requestId, { except, signal } = {}) {
    const body = { requestId, excludeDeviceToken: except };
    return (await this.#call("POST", "/api/push/clear-approval", { body, shape: { ...DONE, devicesNotified: isCount }, signal })).devicesNotified;
  }

  async clearSession(sessionId, { user, signal } = {}) {
    const path = `/api/push/session/${inPath(sessionId)}/notifications`;
    return (await this.#call("DELETE", path, { body: { userId: user }, shape: { ...DONE, clearedCount: isCount }, signal })).clearedCount;
  }

  follow({ appState } = {}) {
    return new SessionFeed(this.#client.url, () => this.#bearer(), appState);
  }

  // Monitors

  async registerMonitor(token, { printer, signal } = {}) {
    return this.#register("/api/devices/register", { ...this.#token("apnsToken", token), printerPrefix: printer }, DEVICE, { signal });
  }

  async updateMonitor(registration, settings, { signal } = {}) {
    const body = Object.fromEntries(Object.keys(SETTINGS).map((name) => [name, settings[name]]));
    await this.#call("PATCH", `/api/devices/${idOf(registration)}/settings`, { body, shape: DONE, signal });
  }

  async deleteMonitor(registration, { signal } = {}) {
    await this.#call("DELETE", `/api/devices/${idOf(registration)}`, { shape: DONE, signal });
  }

  async monitors(printer, { signal } = {}) {
    const { devices } = await this.#call("GET", `/api/devices/by-printer/${inPath(printer)}`, { shape: MONITORS, signal });
    const settings = (device) => Object.fromEntries(Object.entries(SETTINGS).map(([name, key]) => [name, device[key] === 1]));
    return devices.map((device) => ({ id: device.id, settings: settings(device) }));
  }

  async reportStatus(printer, { from, to }, options) { return this.#print(printer, "status", { oldStatus: from, newStatus: to }, options); }
  async reportProgress(printer, progress, options) { return this.#print(printer, "progress", { progress }, options); }

  async #print(printer, what, report, { eventId = newID(), signal } = {}) {
    const path = `/api/monitors/${inPath(printer)}/${what}`;
    const answer = await this.#call("POST", path, { body: { ...report, eventId }, shape: PRINTED, mayRepeat: true, signal });
    return { event: answer.notification, pushes: counts(answer), isRepeated: answer.repeated === true, isIgnored: answer.ignored !== undefined };
  }

  // Calls

  async registerPhone(token, { uid, previous, signal } = {}) {
    return this.#register("/api/voip/token", { ...this.#token("token", token), uid, previousToken: previous }, TOKEN, { signal });
  }

  async deletePhones({ uid, token, all, signal } = {}) {
    // A forgotten token must not end all phones.
    if ((token === undefined) !== (all === true)) throw invalid("invalid_token", "Pass token, or all: true for all phones of this user.");
    const body = { uid, token, all };
    return (await this.#call("DELETE", "/api/voip/token", { body, shape: { ...DONE, purged: isCount }, signal })).purged;
  }

  // All

  async testPush(app, { printer, signal } = {}) {
    return counts(await this.#call("POST", "/api/push/test", { body: { app, printerPrefix: printer }, shape: COUNTS, signal }));
  }

  #token(name, token) { return withApp(name, token, this.#client[internals].app); }

  async #register(path, body, shape, { signal } = {}) {
    const answer = await this.#call("POST", path, { body, shape, signal, mayRepeat: true });
    return new Registration({ ...answer, id: answer.tokenId ?? answer.deviceId });
  }

  async #call(method, path, options) {
    const bearer = await orAborted(this.#bearer(), options.signal);
    return this.#client[internals].call(method, path, { ...options, bearer });
  }

  async #bearer() {
    const jwt = await this.#jwt();
    // A header takes no other letters, and fetch's error would show the JWT.
    if (!isString(jwt) || !/^[\w.-]+$/.test(jwt)) {
      throw invalid("invalid_jwt", "The app's function returned no JWT. Return a JWT of the login, three parts of base64url.");
    }
    return jwt;
  }
}

// MARK: The socket

const hearNews = (message) => {
  const { type, requestId, sessionId, data } = message;
  switch (type) {
    case "authenticated": return { isConnected: true, event: { type: "connected", until: new Date(message.expiresAt) } };
    case "approval_request": return { event: { type, requestId, sessionId, expiresAt: new Date(message.expiresAt) } };
    case "approval_response": return { event: { type, requestId, sessionId, approved: message.approved } };
    case "approval_timeout": return { event: { type, requestId, sessionId, isWithdrawn: message.withdrawn === true } };
    case "progress_update": return { event: { type, sessionId, elapsedSeconds: data.elapsedSeconds, todoProgress: data.todoProgress } };
    case "state_change": return { event: { type, sessionId, previousState: data.previousState, newState: data.newState } };
    case "error":
      if (message.to === "claim") return { event: { type: "claim_refused", error: refusalOf(message) } };
      // A caller over its share. The socket stays open.
      return message.to === "ping" ? undefined : { refusal: message };
  }
};

class SessionFeed {
  #session;

  constructor(broker, bearer, appState) {
    const hello = async () => JSON.stringify({ type: "auth", token: await bearer() });
    this.#session = new Session(broker, { path: "/ws/sessions", shapes: NEWS, most: MOST_NEWS, hello, hear: hearNews }, appState);
  }

  claim(sessionId, { device, type, token, user } = {}) {
    this.#session.send(JSON.stringify({ sessionId, deviceId: device, clientType: type, pushToken: token, userId: user }));
  }

  leave() { this.#session.leave(); }
  next() { return this.#session.next(); }
  return(value) { return this.#session.return(value); }
  [Symbol.asyncIterator ?? "@@asyncIterator"]() { return this; }
}
