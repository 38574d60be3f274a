/** Which of Apple's services a push token belongs to: `sandbox` for builds from Xcode, `production` for TestFlight and the App Store. */
export type Environment = "sandbox" | "production";

/** A browser's `PushSubscription.toJSON()`, as `subscribe` of push.js returns it. */
export interface Subscription {
  endpoint?: string;
  expirationTime?: number | null;
  keys?: Record<string, string>;
}

/** Where pushes go: a token of Apple's in hexadecimal, or a browser's subscription. */
export type PushToken = string | Subscription;

/** The push services that an app has to know before it subscribes. `webPush` is absent if the broker sends no Web Push. */
export interface PushServices {
  webPush?: {
    /** For `pushManager.subscribe()`: a point on P-256 in base64url, 87 characters. */
    applicationServerKey: string;
    /** The key before. Subscriptions for it still get pushes for some time. */
    previous?: string;
    /** The longest endpoint that the broker takes, in bytes. */
    longest: number;
  };
}

/** What became of the push to the peer: docs/delivery.md of Mayfly. `throttled` is no error; the broker tries again later. */
export type Delivery = "queued" | "peer_present" | "no_token" | "throttled" | "none";

/**
 * What a failure means to the caller.
 *
 * The broker refused:
 * - `invalid`: the request or a setting is wrong. Repeating it doesn't help.
 * - `unauthorized`: these credentials don't open this room.
 * - `gone`: the room has ended, or the code is unknown or expired.
 * - `conflict`: the join code is in use or was used. Choose another one.
 * - `exhausted`: this caller is over its share. Try again after `retryAfter`.
 * - `unavailable`: the broker can't serve now. Try again after `retryAfter`.
 *
 * Or it did not answer:
 * - `unreachable`: no answer. Check the network, and try again. The call may have been carried out.
 * - `foreign`: the answer is not Mayfly's, but that of a proxy or another server. Check the broker's address.
 */
export type ErrorKind = "invalid" | "unauthorized" | "gone" | "conflict" | "exhausted" | "unavailable" | "unreachable" | "foreign";

/**
 * Every failure of this module, except that an aborted call throws the signal's reason. `message` says what happened and what to do, and contains no
 * secret.
 */
export class MayflyError extends Error {
  readonly kind: ErrorKind;
  /** The broker's stable code, e.g. `room_not_found`; `network`, `timeout`, `foreign_answer`; or a mistake found here, e.g. `invalid_url`. */
  readonly code: string;
  /** The HTTP status; 0 without an answer, for a redirect in a browser, and for refusals of a session. */
  readonly status: number;
  /** Seconds. Undefined if the broker named no time. */
  readonly retryAfter?: number;
  /** The invalid field of the request. */
  readonly field?: string;
}

/** A random join code of 50 bits in Crockford's base32: ten characters, shown as two groups of five. Secret until it is used. */
export class JoinCode {
  private constructor();
  static random(): JoinCode;
  /** Reads what a person typed: in any case, with spaces or hyphens, O for 0, I or L for 1. Returns null if it is no code. */
  static parse(text: string): JoinCode | null;
  /** As it is sent: `7K3QF9MZ2P`. */
  get text(): string;
  /** As people see it: `7K3QF-9MZ2P`. */
  get display(): string;
}

/** What a side needs to come back to its room. All of it is secret. JSON keeps it whole. */
export interface Credentials {
  roomid: string;
  client: string;
  /** Absent only if the broker no longer hands it out. */
  member?: string;
  /** 1 created the room, 2 accepted. */
  side: 1 | 2;
  /** Finds this side's token in the public log. Absent without a token. */
  ref?: string;
  /** RFC 3339. */
  expiresAt: string;
}

export interface SideStatus {
  isPresent: boolean;
  hasToken: boolean;
}

export interface RoomStatus {
  expiresAt: Date;
  accepted: boolean;
  own: SideStatus;
  peer: SideStatus;
}

export interface CallOptions {
  /** Ends the call at once, also while it waits. The call then throws the signal's reason, and may have been carried out. */
  signal?: AbortSignal;
}

/** A broker. Calls fail with `MayflyError`. They wait and try again for up to 30 seconds if the broker asks for that (429, 503). */
export class Client {
  /**
   * @param url `https://HOST`; `http://` on loopback only. A path is kept: `https://example.org/push` calls `/push/api/rooms`.
   * @param options `environment` of Apple's push tokens; `bundleId` if the broker serves several apps. Neither is sent with a browser's subscription.
   * @throws MayflyError `invalid_url`, `cleartext`, `invalid_environment`, or `no_random` without `crypto.getRandomValues`.
   */
  constructor(url: string, options: { environment: Environment; bundleId?: string });

  /** The broker's URL, without a slash at the end. */
  get url(): string;

  pushServices(options?: CallOptions): Promise<PushServices>;

  /**
   * Makes a room that waits for its other side. A lost answer is asked for again for up to 5 seconds with the same client id, also by another call
   * with the same code within two minutes. Node reports a broker that can't be connected to at once; browsers don't tell that from a lost answer.
   * @param options `code`: visible ASCII, 4 to 64 characters, if it is the app's own. Lives: 10 seconds to 7 days, and to a day for the code; by
   *   default a day.
   */
  create(options: {
    code: JoinCode | string;
    token?: PushToken;
    expiresInSeconds?: number;
    joinExpiresInSeconds?: number;
  } & CallOptions): Promise<Room>;

  /** Uses a join code, once. A lost answer is asked for again like that of `create`. */
  accept(options: { code: JoinCode | string; token?: PushToken } & CallOptions): Promise<Room>;

  /** Returns to a room. Sends nothing. */
  room(credentials: Credentials): Room;
}

/** One side of a room. Its secrets are visible in `credentials()` only. */
export interface Room {
  readonly side: 1 | 2;
  readonly expiresAt: Date;
  /** When the code expires, and with it a room that nobody accepted. Only of a room that this client created. */
  readonly joinExpiresAt?: Date;
  /** The broker's URL. */
  readonly broker: string;
  /** `roomId` in pushes to this side. */
  readonly handle: string;
  /** A copy to keep in the platform's secure storage. Keep it again after `replaceToken` and `withdrawToken`, which change `ref`. */
  credentials(): Credentials;
  status(options?: CallOptions): Promise<RoomStatus>;
  /** Registers a push token, and destroys the one before. The same token again changes nothing. */
  replaceToken(token: PushToken, options?: CallOptions): Promise<void>;
  withdrawToken(options?: CallOptions): Promise<void>;
  /** Reports presence without a socket. It counts for 45 seconds, so report every 30, and leave before the app goes to the background. */
  reportPresence(options?: CallOptions): Promise<Delivery>;
  /** Leaves deliberately, with all sockets of this side. */
  reportLeaving(options?: CallOptions): Promise<void>;
  /**
   * Pushes to this side's own token, also while it is present, to see whether pushes arrive: three times in an hour's window. `queued`, `no_token`,
   * or `throttled` if the token has had too many pushes.
   */
  testPush(options?: CallOptions): Promise<Delivery>;
  /** Ends the room for both sides and destroys its tokens. */
  close(options?: CallOptions): Promise<void>;
  /**
   * Makes this side present over a WebSocket, until `leave()`, the end of the room or a `break` out of `for await`.
   *
   * In a page the session leaves at `pagehide` and `freeze`, on phones and tablets also when the page is hidden, and joins again when it is back.
   * On React Native pass `AppState`: the session leaves in the background.
   */
  join(options?: { appState?: AppState }): RoomSession;
}

/** React Native's `AppState`. */
export interface AppState {
  readonly currentState: string;
  addEventListener(type: "change", listener: (state: string) => void): { remove(): void };
}

export type SessionEvent =
  /** This side is present: first, and after each `disconnected` or return of the app. `delivery` is the push to an absent peer. */
  | { type: "joined"; expiresAt: Date; peerPresent: boolean; delivery: Delivery }
  | { type: "peer_accepted" }
  | { type: "peer_joined" }
  /** With `delivery` the peer vanished, or left just before this side joined, and was pushed to. Without it the peer left deliberately. */
  | { type: "peer_left"; delivery?: Delivery }
  /**
   * The connection is lost, or could not be made. The session tries again, after half a second to half a minute, and `joined` follows. Why it could
   * not be made, a browser doesn't say: `room.status()` does.
   */
  | { type: "disconnected" }
  /** A side closed the room, or it expired. The last event. */
  | { type: "room_closed" }
  /** The room ended while this side was not connected. The last event. */
  | { type: "room_gone" };

/**
 * Events in order, for one reader. The newest 64 wait for it. It throws `MayflyError` if the broker refuses this side for good, and `foreign` if the other
 * end is no broker.
 */
export interface RoomSession extends AsyncIterableIterator<SessionEvent> {
  next(): Promise<IteratorResult<SessionEvent, undefined>>;
  /** Leaves deliberately: the peer hears of it at once, and is pushed to when this side joins again. */
  leave(): void;
}

/** Returns `roomId` of the pushes to one side of a room. */
export function handle(room: Pick<Credentials, "roomid" | "side">): string;

/** Returns the local name of the room that a push is about, or undefined if it is none of these. */
export function nickname(payload: { roomId?: string }, rooms: Iterable<[Room | Pick<Credentials, "roomid" | "side">, string]>): string | undefined;
