import type { AppState, CallOptions, Client, MayflyError, PushToken } from "./mayfly.js";

/** What a name in a push is: `session` of companions and calls, `printer` of monitors, `uid` of callers. */
export type NameKind = "session" | "printer" | "uid";

/** What an app keeps of a registration. All of it is secret. JSON keeps it whole. */
export interface RegistrationCredentials {
  id: string;
  /** Finds the token's entries in the public log. */
  ref: string;
  /** RFC 3339. */
  expiresAt: string;
  /** Makes the handles in pushes to this registration: 43 characters of base64url. */
  handleKey: string;
}

/** A registered token. Its secrets are visible in `credentials()` only. */
export class Registration {
  /** @throws MayflyError `invalid_registration`. */
  constructor(credentials: RegistrationCredentials);
  /** The broker's name for it. */
  readonly id: string;
  readonly expiresAt: Date;
  /** A copy to keep in the platform's secure storage. */
  credentials(): RegistrationCredentials;
  /** Returns what pushes to this registration call `name`: 22 characters of base64url. */
  handle(kind: NameKind, name: string): string;
  /** Returns the name that a handle in a push stands for, or undefined if it is none of these. */
  name(kind: NameKind, handle: string, names: Iterable<string>): string | undefined;
}

/** How many tokens were pushed to, were over their limit, and are of browsers that would show nothing. */
export interface PushCounts {
  queued: number;
  throttled: number;
  skipped: number;
}

/** A session's state. Later brokers may have other words. */
export type SessionState = "idle" | "processing" | "awaitingApproval" | "awaitingAnswer" | "completed" | "error" | (string & {});

export interface TodoProgress {
  completed: number;
  total: number;
}

/** What happened in a session. `requestId` and `questionId` are the back end's own ids. */
export type SessionReport =
  | { type: "approval_request"; data?: { requestId?: string } }
  | { type: "question_asked"; data?: { questionId?: string } }
  /** Any `status` but `success` is a failure, and so is none. */
  | { type: "task_complete"; data?: { status?: string } }
  | { type: "task_failed"; data?: {} }
  | { type: "progress_update"; data: { elapsedSeconds?: number; todoProgress?: TodoProgress } }
  | { type: "state_change"; data: { newState: SessionState; previousState?: SessionState } };

export interface SessionReceipt {
  /** The broker's id of an approval or a question. */
  requestId?: string;
  /** When an approval times out. */
  expiresAt?: Date;
  pushes: PushCounts;
  /** The event was taken before, so this call did nothing. */
  isRepeated: boolean;
}

export interface Approval {
  /** As the call named it. */
  requestId: string;
  sessionId: string;
  status: "pending" | "approved" | "denied" | "timed_out" | "withdrawn" | (string & {});
  expiresAt: Date;
}

export interface CompanionStatus {
  hasDevice: boolean;
  /** Live Activities, oldest first. */
  activities: { activityId: string; sessionId: string; registeredAt: Date }[];
}

/** What is pushed to a device of a monitor. All are true at first. */
export interface MonitorSettings {
  notificationsEnabled: boolean;
  onStart: boolean;
  onComplete: boolean;
  onFailed: boolean;
  onPaused: boolean;
  onMilestone: boolean;
}

/** A printer's status. The broker ignores words that it doesn't know. */
export type PrinterStatus =
  | "running" | "complete" | "finish" | "failed" | "paused" | "pause" | "idle" | "init" | "prepare" | "slicing" | "offline" | "unknown" | "unavailable"
  | "cancelled" | "error" | (string & {});

export interface PrinterReceipt {
  /** The event, also if nobody listens. Undefined if this change is not pushed. */
  event?: "print_started" | "print_complete" | "print_failed" | "print_paused" | "progress_milestone" | (string & {});
  pushes: PushCounts;
  isRepeated: boolean;
  /** The broker doesn't know the status. */
  isIgnored: boolean;
}

export interface ReportOptions extends CallOptions {
  /** The caller's name for the event, 1 to 128 bytes; by default a random one. Give your own if your app may repeat the call. */
  eventId?: string;
}

/**
 * Registrations, approvals and events of apps with accounts: companions, monitors and calls. Ids and names have 1 to 128 bytes.
 *
 * Calls fail with `MayflyError`, and wait and try again like those of `Client`. Registering and reporting ask again for a lost answer for up to 5 seconds.
 */
export class Accounts {
  /**
   * @param jwt returns a valid JWT of the app's login. It is called for each call and each connection. What it throws, calls throw.
   * @throws MayflyError `invalid_accounts`.
   */
  constructor(client: Client, jwt: () => string | Promise<string>);

  /** Registers this device for companions, or renews it. */
  registerDevice(token: PushToken, options?: CallOptions): Promise<Registration>;
  /** Registers the token of a Live Activity. `previous` is its token until now, which is destroyed. */
  registerActivity(
    token: string, options: { activityId: string; sessionId: string; previous?: string } & CallOptions): Promise<Registration>;
  /** Destroys the token of a device or a Live Activity. */
  deleteToken(registration: Registration | string, options?: CallOptions): Promise<void>;
  status(options?: CallOptions): Promise<CompanionStatus>;
  /** Reports an event of a session. `user` is for back ends, which must name it. */
  report(sessionId: string, event: SessionReport, options?: { user?: string } & ReportOptions): Promise<SessionReceipt>;
  /**
   * Answers an approval, once. Returns false if it is too late, or the approval is unknown. A lost answer is not asked for again: see `approval`.
   * @param options `device`: this device's token. It then gets no clearing push.
   */
  respond(requestId: string, approved: boolean, options?: { device?: PushToken } & CallOptions): Promise<boolean>;
  approval(requestId: string, options?: CallOptions): Promise<Approval>;
  /** Clears an approval's notification; a back end withdraws its approval. Returns how many devices get a push. */
  clearApproval(requestId: string, options?: { except?: PushToken } & CallOptions): Promise<number>;
  /** Clears a session's notifications and ends its Live Activities. Returns how many. `user` is for back ends. */
  clearSession(sessionId: string, options?: { user?: string } & CallOptions): Promise<number>;
  /**
   * Follows the user's sessions over a WebSocket, until `leave()` or a `break` out of `for await`. In a page and on React Native it pauses and returns
   * like `Room.join`.
   */
  follow(options?: { appState?: AppState }): SessionFeed;

  /** Registers this device for a printer, or renews it. Without `printer` it watches none. */
  registerMonitor(token: PushToken, options?: { printer?: string } & CallOptions): Promise<Registration>;
  /** Changes what is pushed. An absent setting stays. */
  updateMonitor(registration: Registration | string, settings: Partial<MonitorSettings>, options?: CallOptions): Promise<void>;
  deleteMonitor(registration: Registration | string, options?: CallOptions): Promise<void>;
  /** For back ends: the devices that watch a printer and have notifications on. */
  monitors(printer: string, options?: CallOptions): Promise<{ id: string; settings: MonitorSettings }[]>;
  /** For back ends. */
  reportStatus(printer: string, change: { from: PrinterStatus; to: PrinterStatus }, options?: ReportOptions): Promise<PrinterReceipt>;
  /** For back ends. `progress` is 0 to 100. */
  reportProgress(printer: string, progress: number, options?: ReportOptions): Promise<PrinterReceipt>;

  /** Registers a phone's token, so that it rings for `uid`. `previous` is its token until now, which is destroyed. */
  registerPhone(token: PushToken, options: { uid: string; previous?: PushToken } & CallOptions): Promise<Registration>;
  /** Destroys one token, or all of the user. Returns how many there were. */
  deletePhones(options: { uid: string } & ({ token: PushToken; all?: undefined } | { all: true; token?: undefined }) & CallOptions): Promise<number>;

  /** Pushes to the user's own devices: three times an address in an hour's window. `printer` is for monitors. */
  testPush(app: "companion" | "monitor" | "calls", options?: { printer?: string } & CallOptions): Promise<PushCounts>;
}

export type SessionNews =
  /** Also after each `disconnected` or return of the app. News in between were missed. `until` is the end of the JWT. */
  | { type: "connected"; until: Date }
  | { type: "approval_request"; requestId: string; sessionId: string; expiresAt: Date }
  | { type: "approval_response"; requestId: string; sessionId: string; approved: boolean }
  /** Nobody answered in time, or the back end has withdrawn it. */
  | { type: "approval_timeout"; requestId: string; sessionId: string; isWithdrawn: boolean }
  | { type: "progress_update"; sessionId: string; elapsedSeconds?: number; todoProgress?: TodoProgress }
  | { type: "state_change"; sessionId: string; previousState?: SessionState; newState: SessionState }
  /** The broker refused a `claim`. */
  | { type: "claim_refused"; error: MayflyError }
  /** The connection is lost, or there was no JWT. The feed tries again by itself. */
  | { type: "disconnected" };

/**
 * News in order, for one reader. The newest 64 wait for it. It asks for another JWT if one has ended. It throws `MayflyError` if the broker refuses a JWT
 * otherwise, and `foreign` if it is no broker.
 */
export interface SessionFeed extends AsyncIterableIterator<SessionNews> {
  next(): Promise<IteratorResult<SessionNews, undefined>>;
  /**
   * Makes this client the session's only active one. The device before gets a push, `session_handoff`. Waits for the connection. It
   * is dropped if the app leaves before that, or is away.
   * @param options `device`: the client's own name for itself. `token`: this device's, for the next handoff. `user` is for back ends.
   */
  claim(sessionId: string, options: { device: string; type?: "ios" | "desktop" | "web"; token?: PushToken; user?: string }): void;
  leave(): void;
}
