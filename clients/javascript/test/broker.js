// The real broker with its simulator of Apple, on free ports, with throw-away keys in a folder that goes away.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const binary = process.env.MAYFLY_BINARY ?? fileURLToPath(new URL("../../../.build/debug/mayfly", import.meta.url));

export async function freePort() {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address();
  server.close();
  return port;
}

// Without settings of the machine that it runs on.
const environment = Object.fromEntries(Object.entries(process.env).filter(([name]) => !/^(MAYFLY|APNS|COMETCHAT)_/.test(name)));

// A test that is stopped leaves no process behind.
const children = new Set();
process.on("exit", () => { for (const child of children) child.kill("SIGKILL"); });
for (const signal of ["SIGTERM", "SIGINT"]) process.once(signal, () => process.exit(1));

function run(...words) {
  const child = spawn(binary, words, { env: environment, stdio: ["ignore", "ignore", "pipe"] });
  children.add(child);
  child.once("exit", () => children.delete(child));
  child.errors = "";
  child.stderr.on("data", (text) => { child.errors += text; });
  return child;
}

async function answers(url, child) {
  await eventually(async () => {
    if (child.exitCode !== null) throw new Error(`mayfly ended: ${child.errors}`);
    return (await fetch(url).catch(() => null))?.ok;
  }, url, 60);
}

async function end(child) {
  if (child.exitCode !== null || child.signalCode !== null) return;
  child.kill("SIGKILL");
  await once(child, "exit");
}

/** Asks until the answer is true, and returns it. */
export async function eventually(question, what = "it", seconds = 20) {
  for (const end = Date.now() + 1000 * seconds; ;) {
    const answer = await question();
    if (answer) return answer;
    if (Date.now() > end) throw new Error(`${what} did not come true within ${seconds} s`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

/** The server of hostile answers. `url` has a path for each case of the corpus. */
export class HostileServer {
  static async start() {
    const folder = new URL("../../hostile/", import.meta.url);
    const server = new HostileServer();
    server.corpus = JSON.parse(await readFile(new URL("corpus.json", folder)));
    server.child = spawn("python3", [fileURLToPath(new URL("server.py", folder))], { stdio: ["pipe", "pipe", "inherit"] });
    children.add(server.child);
    const [port] = await once(server.child.stdout, "data");
    server.url = `http://127.0.0.1:${parseInt(port, 10)}`;
    return server;
  }

  async stop() { await end(this.child); }
}

export class Broker {
  /** With `users` it also serves companions, monitors and calls. */
  static async start({ users = false } = {}) {
    const broker = new Broker();
    broker.folder = await mkdtemp(join(tmpdir(), "mayfly-js-"));
    const state = join(broker.folder, "state");
    const [port, operator, apple, control] = await Promise.all([1, 2, 3, 4].map(freePort));
    Object.assign(broker, { port, operator: `http://127.0.0.1:${operator}`, control: `http://127.0.0.1:${control}` });
    const app = [
      "--apns-key-path", `${state}/keys/apns.p8`, "--apns-key-id", "THROWAWAY1", "--apns-team-id", "THROWAWAY2",
      "--apns-bundle-id", "org.example.app"];
    await once(run("keys", "throwaway", "--state", state, "--origin", "mayfly.test/log"), "exit");
    broker.simulator = run(
      "apns-simulator", "--listen", `127.0.0.1:${apple}`, "--control", `127.0.0.1:${control}`, "--certificate", `${state}/keys/simulator.pem`, ...app);
    broker.words = [
      "serve", "--state", state, "--listen", `127.0.0.1:${port}`, "--operator-listen", `127.0.0.1:${operator}`, "--resolution", "1",
      ...(users
        ? ["--policy", "trial,companion,monitor,calls", "--jwt-algorithm", "HS256", "--jwt-key", `${state}/keys/jwt.secret`,
          "--webhook-secrets", `${state}/keys/webhook.secret`]
        : ["--policy", "trial"]),
      "--apns-endpoint", `127.0.0.1:${apple}`, "--apns-ca", `${state}/keys/simulator-ca.pem`, ...app];
    await answers(`${broker.control}/pushes`, broker.simulator);
    await broker.run();
    return broker;
  }

  get url() { return `http://127.0.0.1:${this.port}`; }

  async run() {
    this.child = run(...this.words);
    await answers(`${this.operator}/readyz`, this.child);
  }

  /** Ends the broker without a goodbye. */
  async kill() { await end(this.child); }

  /** Returns a JWT of a user, or of a back end with `scope`. */
  async jwt(user, ...more) {
    const words = ["jwt", "--sub", user, "--algorithm", "HS256", "--key", join(this.folder, "state/keys/jwt.secret"), ...more];
    const child = spawn(binary, words, { env: environment });
    return (await child.stdout.toArray()).join("").trim();
  }

  /** The pushes that Apple would have got for a token. */
  async pushes(token) {
    const pushes = await (await fetch(`${this.control}/pushes`)).json();
    return pushes.filter((push) => push.token === token);
  }

  async stop() {
    await end(this.child);
    await end(this.simulator);
    await rm(this.folder, { recursive: true, force: true });
  }
}
