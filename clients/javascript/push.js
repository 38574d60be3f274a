// Web Push for pages. The service worker is sw.js. push.d.ts documents what is exported.

import { Client, MayflyError } from "./mayfly.js";
import "./sw.js";

const { setSetting, subscriptionFor, replaceTokens } = globalThis.mayflyPush;
export const { keepRoom, keptRoom, keptRooms, forgetRoom, setTexts } = globalThis.mayflyPush;

const refused = (code, message) => new MayflyError("invalid", code, message);
const denied = () => refused(
  "permission_denied", "Notifications are not allowed. The browser asks only in a click; after a refusal, the person has to allow them in its settings.");

export async function subscribe(broker, registration) {
  const client = typeof broker === "string" ? new Client(broker, { environment: "production" }) : broker;
  const { Notification } = globalThis;
  if (!Notification || !registration?.pushManager) {
    throw refused("push_unsupported", "This browser has no Web Push here. On an iPhone or iPad, add the page to the home screen and open it from there.");
  }
  // Ask before the first await. A later question may not count as part of the click.
  const permission = Notification.permission === "default" ? await Notification.requestPermission() : Notification.permission;
  if (permission !== "granted") throw denied();
  const { webPush } = await client.pushServices();
  if (!webPush) throw refused("web_push_off", "This broker sends no Web Push. Its operator has to set a VAPID key.");
  let subscription;
  try {
    subscription = await subscriptionFor(registration, webPush.applicationServerKey);
  } catch (error) {
    if (error?.name === "NotAllowedError") throw denied();
    // Without the browser's text: it may have the endpoint.
    throw new MayflyError("unreachable", "push_service", "The browser's push service can't be reached. Check the network and try again.");
  }
  await setSetting("broker", client.url);
  await replaceTokens(client.url, subscription);
  return subscription.toJSON();
}

export function onOpenRoom(action) {
  const open = async (handle) => action(handle, await keptRoom(handle).catch(() => undefined));
  const readAddress = () => {
    const [, handle] = /^#mayfly-room=([\w-]{22})$/.exec(location.hash) ?? [];
    if (!handle) return;
    history.replaceState(history.state, "", location.pathname + location.search);
    open(handle);
  };
  navigator.serviceWorker.addEventListener("message", ({ data }) => { if (data?.type === "mayfly-room") open(data.handle); });
  addEventListener("hashchange", readAddress);
  readAddress();
}
