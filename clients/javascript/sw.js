// Mayfly's service worker. It shows pushes, opens the room of a tapped notification, and renews the subscription. Register this file, or load it into
// the app's own worker with importScripts(). push.js loads it into the page, for the rooms that both keep. Not a module: not every browser runs a
// service worker that is one. push.d.ts documents the functions.

(() => {
  "use strict";

  const REQUEST_MS = 20_000;
  const LOOKUP_MS = 3_000; // iOS revokes a subscription whose pushes show nothing. So a storage that hangs must not delay a notification for long.
  const CLOCK_ERROR_MS = 86_400_000; // The phone's clock may be wrong, so an expired room is kept for a day longer.
  const IS_HANDLE = /^[\w-]{22}$/;
  const UNREADABLE = { title: "New notification", body: "Open the app to see it.", tag: "mayfly_unreadable", data: { template: "unreadable" } };

  const ignoring = (promise) => promise.catch(() => {});

  // MARK: Storage of page and worker

  function openDatabase() {
    return new Promise((resolve, reject) => {
      const request = indexedDB.open("mayfly-push", 1);
      request.onupgradeneeded = () => {
        request.result.createObjectStore("rooms", { keyPath: "handle" });
        request.result.createObjectStore("settings");
      };
      request.onsuccess = () => resolve(request.result);
      request.onerror = () => reject(request.error);
    });
  }

  /** Runs one request in a transaction of its own, and returns the result once the transaction is complete. */
  async function inStore(name, mode, request) {
    const database = await openDatabase();
    try {
      return await new Promise((resolve, reject) => {
        const transaction = database.transaction(name, mode);
        const made = request(transaction.objectStore(name));
        transaction.oncomplete = () => resolve(made.result);
        transaction.onabort = () => reject(transaction.error);
      });
    } finally {
      database.close();
    }
  }

  const setting = (name) => inStore("settings", "readonly", (store) => store.get(name));
  const setSetting = (name, value) => inStore("settings", "readwrite", (store) => store.put(value, name));
  const setTexts = async (texts) => { await setSetting("texts", texts); };

  async function keepRoom(room, { nickname, token } = {}) {
    const kept = { handle: room.handle, broker: room.broker, credentials: room.credentials(), nickname, endpoint: token?.endpoint };
    await inStore("rooms", "readwrite", (store) => store.put(kept));
  }

  const keptRoom = (handle) => inStore("rooms", "readonly", (store) => store.get(handle));
  const forgetRoom = ({ handle }) => inStore("rooms", "readwrite", (store) => store.delete(handle));

  async function keptRooms() {
    const rooms = await inStore("rooms", "readonly", (store) => store.getAll());
    const hasEnded = ({ credentials }) => Date.parse(credentials.expiresAt) + CLOCK_ERROR_MS < Date.now();
    await Promise.all(rooms.filter(hasEnded).map(forgetRoom));
    return rooms.filter((room) => !hasEnded(room));
  }

  /** Changes a room in one transaction, so that a room forgotten meanwhile doesn't come back. */
  const changeRoom = (handle, change) => inStore("rooms", "readwrite", (store) => {
    const request = store.get(handle);
    request.onsuccess = () => { if (request.result) store.put(change(request.result)); };
    return request;
  });

  // MARK: Subscription

  /** Returns the object of an answer with the status. A proxy's answer counts as an empty object. */
  async function call(broker, method, path, bearer, body) {
    const answer = await fetch(broker + path, {
      method, body: body && JSON.stringify(body), credentials: "omit", redirect: "manual", referrerPolicy: "no-referrer",
      headers: { ...(body && { "Content-Type": "application/json" }), ...(bearer && { Authorization: `Bearer ${bearer}` }) },
      signal: AbortSignal.timeout(REQUEST_MS),
    });
    const isMayflys = /^application\/(problem\+)?json\b/i.test(answer.headers.get("Content-Type") ?? "");
    return { ok: answer.ok, said: (isMayflys && await answer.json()) || {} };
  }

  function keyOf({ options }) {
    const bytes = new Uint8Array(options?.applicationServerKey ?? []);
    return btoa(String.fromCharCode(...bytes)).replace(/\+/g, "-").replace(/\//g, "_").replace(/=+$/, "");
  }

  /** Returns the browser's subscription for a key of the broker. A subscription for another key ends, since a worker can have only one. */
  async function subscriptionFor(registration, applicationServerKey) {
    const subscription = await registration.pushManager.getSubscription();
    if (subscription && keyOf(subscription) === applicationServerKey) return subscription;
    await subscription?.unsubscribe();
    return registration.pushManager.subscribe({ userVisibleOnly: true, applicationServerKey });
  }

  async function replaceToken({ broker, handle, credentials: { roomid, client, member } }, token) {
    const { ok, said } = await call(broker, "PUT", "/api/room/token", roomid, { client, member, token });
    if (ok && /^[0-9a-f]{32}$/.test(said.ref)) {
      const change = (room) => ({ ...room, endpoint: token.endpoint, credentials: { ...room.credentials, ref: said.ref } });
      await changeRoom(handle, change);
    } else if (said.code === "room_not_found") {
      await forgetRoom({ handle });
    }
  }

  /** Registers the subscription for each kept room of this broker that has another one. The next call tries failed rooms again. */
  async function replaceTokens(broker, subscription) {
    const token = subscription.toJSON();
    const stale = (await keptRooms()).filter((room) => room.broker === broker && room.endpoint !== token.endpoint);
    await Promise.all(stale.map((room) => ignoring(replaceToken(room, token))));
  }

  async function renew() {
    const broker = await setting("broker");
    if (!broker) return;
    const { said } = await call(broker, "GET", "/api/push");
    if (said.webPush) await replaceTokens(broker, await subscriptionFor(self.registration, said.webPush.applicationServerKey));
  }

  async function retry() {
    const [broker, subscription] = await Promise.all([setting("broker"), self.registration.pushManager.getSubscription()]);
    if (broker && subscription) await replaceTokens(broker, subscription);
  }

  // MARK: Notifications

  /** Returns the notification that a push describes. Safari parses it, and then passes no data. */
  function read(event) {
    if (event.notification) {
      const { title, body, tag, navigate, data } = event.notification;
      return { title, body, tag, navigate, data };
    }
    try {
      const message = event.data.json();
      return message.web_push === 8030 && message.notification.title ? message.notification : UNREADABLE;
    } catch {
      return UNREADABLE;
    }
  }

  /** Returns the page to open. The handle is in the fragment, which no server sees. A page of another origin is never opened. */
  function pageURL(navigate, handle) {
    let url = new URL(self.registration.scope);
    try {
      const wanted = new URL(navigate, url);
      if (navigate && wanted.origin === url.origin) url = wanted;
    } catch {
      // The scope stays.
    }
    if (handle) url.hash = `mayfly-room=${handle}`;
    return url.href;
  }

  function within(ms, promise) {
    let timer;
    const timeout = new Promise((_, reject) => { timer = setTimeout(reject, ms); });
    return Promise.race([promise, timeout]).finally(() => clearTimeout(timer));
  }

  async function show(event) {
    const { title, navigate, data, ...pushed } = read(event);
    const handle = IS_HANDLE.test(data?.roomId) ? data.roomId : undefined;
    const lookUp = Promise.all([setting("texts"), handle && keptRoom(handle)]);
    const [texts, room] = await within(LOOKUP_MS, lookUp).catch(() => []);
    const { title: ownTitle, ...own } = texts?.[data?.template] ?? {};
    const url = pageURL(navigate, handle);
    // Safari requires `navigate` for a push that it has parsed. For others it would replace notificationclick.
    const always = { data: { mayfly: { handle, url } }, ...(event.notification && { navigate: url }) };
    try {
      const options = { ...pushed, ...own, ...always, renotify: Boolean(pushed.tag) };
      await self.registration.showNotification(room?.nickname ?? ownTitle ?? title, options);
    } catch {
      // A browser refuses options that it can't read.
      await self.registration.showNotification(UNREADABLE.title, { body: UNREADABLE.body, tag: UNREADABLE.tag, ...always });
    }
  }

  async function open(notification) {
    notification.close();
    const { handle, url } = notification.data.mayfly;
    const windows = await self.clients.matchAll({ type: "window", includeUncontrolled: true });
    const page = windows.find((window) => window.url.startsWith(self.registration.scope)); // The one last used is first.
    if (!page) return void await self.clients.openWindow(url);
    if (handle) page.postMessage({ type: "mayfly-room", handle });
    await ignoring(page.focus());
  }

  // A renewal that fails is tried again by the next push, or by the page's next subscribe().
  if (typeof ServiceWorkerGlobalScope !== "undefined") {
    self.addEventListener("push", (event) => event.waitUntil(Promise.all([show(event), ignoring(retry())])));
    self.addEventListener("notificationclick", (event) => { if (event.notification.data?.mayfly) event.waitUntil(open(event.notification)); });
    self.addEventListener("pushsubscriptionchange", (event) => event.waitUntil(ignoring(renew())));
  }

  globalThis.mayflyPush = { keepRoom, keptRoom, keptRooms, forgetRoom, setTexts, setSetting, subscriptionFor, replaceTokens, renew, show, open };
})();
