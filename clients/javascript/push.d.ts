import type { Client, Credentials, Room, Subscription } from "./mayfly.js";

/**
 * Returns the browser's subscription for this broker, to hand to `create`, `accept` and `replaceToken`. Subscribes if there is none, or if the broker
 * has another key by now. Then all kept rooms of this broker get the new subscription.
 *
 * Call it directly in a click's handler: it may ask the person for permission, which browsers allow in a click only. Once permission is granted, call
 * it at each start of the page too, since browsers change subscriptions without telling.
 *
 * @param broker a client, or the broker's URL.
 * @param registration `await navigator.serviceWorker.ready`, awaited before the click. Its worker is sw.js, or loads it.
 * @throws MayflyError `push_unsupported`, `permission_denied`, `web_push_off` (all of kind `invalid`), `push_service` (kind `unreachable`), or as any call.
 *   This and the calls below pass on the browser's error if it can't store.
 */
export function subscribe(broker: Client | string, registration: ServiceWorkerRegistration): Promise<Required<Subscription>>;

/** What page and worker keep of a room, in IndexedDB. Every script of the page's origin can read it. */
export interface KeptRoom {
  handle: string;
  /** The broker's URL. */
  broker: string;
  /** For `client.room()`. The worker changes `ref` when it replaces the token. */
  credentials: Credentials;
  /** Shown as the title of the room's notifications. It never leaves the device. */
  nickname?: string;
  /** Endpoint of the subscription that the room has. */
  endpoint?: string;
}

/**
 * Keeps a room for the worker, which then names it in notifications and moves it to a new subscription.
 * @param options `token`: the subscription that the room was made with, or got last.
 */
export function keepRoom(room: Room, options?: { nickname?: string; token?: Subscription }): Promise<void>;
/** Call it when a room has ended. The worker forgets rooms that the broker no longer knows, and rooms that expired a day ago. */
export function forgetRoom(room: Pick<KeptRoom, "handle">): Promise<void>;
export function keptRoom(handle: string): Promise<KeptRoom | undefined>;
export function keptRooms(): Promise<KeptRoom[]>;

/** Options of `showNotification()`, e.g. `icon` and `lang`. */
export interface NotificationText {
  /** Replaced by the room's nickname, if there is one. */
  title?: string;
  body?: string;
  [option: string]: unknown;
}

/**
 * Sets the texts of notifications in the reader's language, by the template's name, e.g. `peer_waiting`. Other templates keep the broker's text. The
 * text named `unreadable` is for pushes that can't be read.
 */
export function setTexts(texts: Record<string, NotificationText>): Promise<void>;

/**
 * Calls `action` when a notification is tapped, also one that opened this page. `room` is undefined if the room isn't kept. Call it once, while the
 * page loads.
 */
export function onOpenRoom(action: (handle: string, room: KeptRoom | undefined) => void): void;

declare global {
  /** In a worker that loads sw.js. It listens by itself; these are for an app with handlers of its own. */
  var mayflyPush: {
    /** Shows the notification of a push. */
    show(event: Event): Promise<void>;
    /** Opens the room of a notification that `show` made. */
    open(notification: Notification): Promise<void>;
    /** Subscribes anew if needed, and replaces the tokens of all kept rooms. */
    renew(): Promise<void>;
  };
}
