// What a browser has and Node has not: IndexedDB, notifications, subscriptions and a service worker's scope. As small as the tests need.

import { readFile } from "node:fs/promises";

/** One database of the process. A request is answered in a later task, as in a browser. */
export class FakeIndexedDB {
  stores = new Map();
  isBroken = false;
  isSilent = false;

  open() {
    const request = {};
    if (this.isSilent) return request;
    setImmediate(() => {
      if (this.isBroken) return request.onerror(request.error = new Error("storage is disabled"));
      request.result = {
        createObjectStore: (name, { keyPath } = {}) => this.stores.set(name, { keyPath, rows: new Map() }),
        transaction: (name, mode) => this.#transaction(this.stores.get(name), mode),
        close() {},
      };
      if (!this.stores.size) request.onupgradeneeded();
      request.onsuccess();
    });
    return request;
  }

  #transaction({ keyPath, rows }, mode) {
    let waiting = 0;
    const transaction = {};
    const request = (answer, isWrite) => {
      if (isWrite && mode !== "readwrite") throw new Error("ReadOnlyError");
      const made = {};
      waiting++;
      setImmediate(() => {
        made.result = structuredClone(answer());
        made.onsuccess?.();
        if (!--waiting) transaction.oncomplete();
      });
      return made;
    };
    transaction.objectStore = () => ({
      get: (key) => request(() => rows.get(key)),
      getAll: () => request(() => [...rows.values()]),
      put: (value, key) => {
        const copy = structuredClone(value);
        return request(() => { rows.set(keyPath ? copy[keyPath] : key, copy); }, true);
      },
      delete: (key) => request(() => { rows.delete(key); }, true),
    });
    return transaction;
  }
}

const bytesOf = (key) => new Uint8Array(Buffer.from(key, "base64url")).buffer;

/** A push service that accepts everybody, with Chromium's refusal of a second key. */
export class FakePushManager {
  #current = null;
  asked = [];
  made = 0;
  failure = null;

  async getSubscription() { return this.#current; }

  async subscribe({ userVisibleOnly, applicationServerKey }) {
    this.asked.push({ userVisibleOnly, applicationServerKey });
    if (this.failure) throw this.failure;
    if (this.#current) throw new DOMException("another key", "InvalidStateError");
    return this.replace(applicationServerKey);
  }

  /** The browser changes the subscription by itself. */
  replace(applicationServerKey) {
    const endpoint = `https://push.example.net/secret-${++this.made}`;
    this.#current = {
      endpoint,
      options: { userVisibleOnly: true, applicationServerKey: bytesOf(applicationServerKey) },
      toJSON: () => ({ endpoint, expirationTime: null, keys: { p256dh: `B${"p".repeat(86)}`, auth: "a".repeat(22) } }),
      unsubscribe: async () => { this.#current = null; return true; },
    };
    return this.#current;
  }

  drop() { this.#current = null; }
}

export class FakeNotification {
  static permission = "granted";
  static answer = "granted";
  static asked = 0;

  static async requestPermission() {
    this.asked++;
    return (this.permission = this.answer);
  }

  isClosed = false;
  constructor(title, options) { Object.assign(this, { title, ...options }); }
  close() { this.isClosed = true; }
}

class FakeWindow {
  messages = [];
  isFocused = false;
  constructor(url) { this.url = url; }
  postMessage(message) { this.messages.push(structuredClone(message)); }
  async focus() { this.isFocused = true; }
}

/** Runs sw.js as a classic script, in a scope of its own. */
export class FakeWorker extends EventTarget {
  static async start({ before } = {}) {
    const worker = new FakeWorker();
    before?.(worker);
    const program = await readFile(new URL("../sw.js", import.meta.url), "utf8");
    new Function("self", "globalThis", "ServiceWorkerGlobalScope", program)(worker, worker, FakeWorker);
    return worker;
  }

  location = new URL("https://app.example/chat/sw.js");
  shown = [];
  opened = [];
  windows = [];

  registration = {
    scope: "https://app.example/chat/",
    pushManager: new FakePushManager(),
    showNotification: async (title, options) => {
      if (options.renotify && !options.tag) throw new TypeError("renotify needs a tag");
      if (options.vibrate === "no") throw new TypeError("vibrate");
      this.shown.push(new FakeNotification(title, structuredClone(options)));
    },
  };

  clients = {
    matchAll: async ({ type, includeUncontrolled }) => (type === "window" && includeUncontrolled ? this.windows : []),
    openWindow: async (url) => { this.opened.push(url); },
  };

  addWindow(url) {
    const window = new FakeWindow(url);
    this.windows.push(window);
    return window;
  }

  /** Returns what the event's listeners wait for. */
  async fire(name, properties = {}) {
    const waiting = [];
    const event = Object.assign(new Event(name), properties, { waitUntil: (promise) => waiting.push(promise) });
    this.dispatchEvent(event);
    await Promise.all(waiting);
    return waiting.length;
  }

  /** Delivers a push of these bytes, and returns the notification. */
  async push(bytes) {
    const data = bytes === null ? null : { json: () => JSON.parse(bytes), text: () => bytes };
    await this.fire("push", { data });
    return this.shown.at(-1);
  }

  click(notification) { return this.fire("notificationclick", { notification }); }
}
