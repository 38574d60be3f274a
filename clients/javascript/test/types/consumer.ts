// A strict app that calls everything that the package exports. It is compiled, not run.

import { Client, JoinCode, MayflyError, handle, nickname } from "@mayfly/client";
import type { Credentials, Delivery, ErrorKind, PushToken, Room, RoomSession, SessionEvent } from "@mayfly/client";
import { Accounts, Registration } from "@mayfly/client/accounts";
import type { MonitorSettings, PushCounts, RegistrationCredentials, SessionFeed, SessionNews, SessionReport } from "@mayfly/client/accounts";
import { forgetRoom, keepRoom, keptRoom, keptRooms, onOpenRoom, setTexts, subscribe } from "@mayfly/client/push";

export async function rooms(token: PushToken, signal: AbortSignal): Promise<void> {
  const client: Client = new Client("https://push.example.org", { environment: "sandbox", bundleId: "org.example.app" });
  const key: string | undefined = (await client.pushServices({ signal })).webPush?.applicationServerKey;
  const code: JoinCode = JoinCode.random();
  const typed: JoinCode | null = JoinCode.parse(`${code.display} ${code.text}`);
  const made: Room = await client.create({ code, token, expiresInSeconds: 60, joinExpiresInSeconds: 20, signal });
  if (typed) await client.accept({ code: typed });
  const kept: Credentials = made.credentials();
  const room: Room = client.room(kept);
  const present: boolean = (await room.status()).peer.isPresent;
  await room.replaceToken({ endpoint: "https://push.example.net/1", keys: { p256dh: "", auth: "" } });
  await room.withdrawToken();
  const delivery: Delivery = await room.reportPresence();
  await room.reportLeaving();
  await room.testPush();
  const session: RoomSession = room.join();
  for await (const event of session) text(event);
  session.leave();
  await room.close();
  const [mine, name]: [string, string | undefined] = [handle(kept), nickname({ roomId: room.handle }, [[kept, "Ben"], [room, "Ann"]])];
  use(client.url, key, present, delivery, mine, name, room.side, room.joinExpiresAt?.getTime(), room.broker);
}

function text(event: SessionEvent): string | undefined {
  switch (event.type) {
    case "joined": return `${event.peerPresent} ${event.delivery} ${event.expiresAt.getTime()}`;
    case "peer_left": return event.delivery;
    case "peer_accepted": case "peer_joined": case "disconnected": case "room_closed": case "room_gone": return undefined;
  }
}

export async function accounts(client: Client, jwt: () => Promise<string>, report: SessionReport): Promise<void> {
  const user = new Accounts(client, jwt);
  const device: Registration = await user.registerDevice("a1");
  await user.registerActivity("b2", { activityId: "a", sessionId: "s", previous: "c3" });
  const kept: RegistrationCredentials = device.credentials();
  const again = new Registration(kept);
  const name: string | undefined = again.name("session", again.handle("session", "s"), new Set(["s"]));
  const { hasDevice, activities } = await user.status();
  const { requestId, expiresAt, pushes, isRepeated } = await user.report("s", report, { user: "u", eventId: "e" });
  await user.report("s", { type: "state_change", data: { newState: "idle" } });
  const answered: boolean = await user.respond(requestId ?? "r", true, { device: "a1" });
  const { status } = await user.approval("r");
  const cleared: number = await user.clearApproval("r", { except: "a1" }) + await user.clearSession("s", { user: "u" });
  const feed: SessionFeed = user.follow();
  feed.claim("s", { device: "phone", type: "ios", token: "a1", user: "u" });
  for await (const news of feed) line(news);
  feed.leave();
  await user.deleteToken(device);
  const monitor = await user.registerMonitor("a1", { printer: "p" });
  await user.updateMonitor(monitor.id, { onStart: false });
  const settings: MonitorSettings | undefined = (await user.monitors("p"))[0]?.settings;
  const { event, isIgnored } = await user.reportStatus("p", { from: "idle", to: "running" }, { eventId: "e" });
  await user.reportProgress("p", 50);
  await user.deleteMonitor(monitor);
  await user.registerPhone("a1", { uid: "u", previous: "b2" });
  const purged: number = await user.deletePhones({ uid: "u", token: "a1" });
  const tested: PushCounts = await user.testPush("monitor", { printer: "p" });
  use(name, hasDevice, activities[0]?.registeredAt.getTime(), expiresAt, pushes.queued, isRepeated, answered, status, cleared, settings, event);
  use(isIgnored, purged, tested.skipped, device.expiresAt);
}

function line(news: SessionNews): string | undefined {
  switch (news.type) {
    case "connected": return news.until.toISOString();
    case "approval_request": return news.requestId + news.expiresAt.toISOString();
    case "approval_response": return String(news.approved);
    case "approval_timeout": return String(news.isWithdrawn);
    case "progress_update": return `${news.elapsedSeconds} ${news.todoProgress?.total}`;
    case "state_change": return news.newState;
    case "claim_refused": return news.error.code;
    case "disconnected": return undefined;
  }
}

export async function page(client: Client, registration: ServiceWorkerRegistration, room: Room): Promise<void> {
  onOpenRoom((handle, kept) => use(handle, kept?.nickname));
  await setTexts({ peer_waiting: { body: "wartet auf dich" } });
  await keepRoom(room, { nickname: "Ben", token: await subscribe(client, registration) });
  const kept = (await keptRoom(room.handle)) ?? (await keptRooms())[0];
  if (kept) await forgetRoom(kept);
}

export function advice(error: unknown): string {
  if (!(error instanceof MayflyError)) throw error;
  const kind: ErrorKind = error.kind;
  return `${kind} ${error.code} ${error.status} ${error.retryAfter ?? 0} ${error.field ?? ""}`;
}

function use(..._: unknown[]): void {}
