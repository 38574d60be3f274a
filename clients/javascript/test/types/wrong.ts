// Mistakes of an app. Each line with a number must be refused with this error of TypeScript's, and no other line.

import { Client, JoinCode } from "@mayfly/client";
import { Accounts, Registration } from "@mayfly/client/accounts";
import { keepRoom } from "@mayfly/client/push";
import { internals } from "@mayfly/client"; // 2305
import { Broker } from "@mayfly/client/test/broker.js"; // 2307

const client = new Client("https://push.example.org", { environment: "staging" }); // 2322
const accounts = new Accounts(client, "a JWT"); // 2345
new Client("https://push.example.org"); // 2554
new JoinCode("7K3QF9MZ2P"); // 2673

export async function mistakes(registration: Registration): Promise<void> {
  await client.create({ token: "a1" }); // 2345
  await client.accept({ code: JoinCode.parse("x") }); // 2322
  await accounts.registerActivity("a1", { activityId: "a" }); // 2345
  await accounts.registerPhone("a1"); // 2554
  await accounts.report("s", { type: "state_change" }); // 2345
  await accounts.report("s", { type: "approval" }); // 2322
  await accounts.updateMonitor(registration, { onStop: true }); // 2345
  await accounts.testPush("rooms"); // 2345
  registration.handle("room", "s"); // 2345
  registration.id = "other"; // 2540
  const handleKey: string = registration.handleKey; // 2551
  for await (const news of accounts.follow()) if (news.type === "joined") return; // 2367
  await keepRoom({ roomid: "r" }); // 2345
  return handleKey; // 2322
}
