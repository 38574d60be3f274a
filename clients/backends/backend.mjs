// A back end that reports events, asks for approvals and rings phones, with Node 20 alone.

import { createHmac, randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';

const secret = (variable) => readFileSync(process.env[variable], 'utf8').trim();

// Lasts five minutes. The secret is that of the app's login, an HS256 key that the broker has, too.
function jwt() {
  const now = Math.floor(Date.now() / 1000);
  const text = [{ alg: 'HS256', typ: 'JWT' }, { sub: 'back-end', scope: 'broker.notify', iat: now, exp: now + 300 }]
    .map((part) => Buffer.from(JSON.stringify(part)).toString('base64url')).join('.');
  return `${text}.${createHmac('sha256', secret('LOGIN_SECRET')).update(text).digest('base64url')}`;
}

// Repeats what the broker had no time for. Other errors are thrown.
async function send(method, path, body, headers) {
  for (let tries = 1; ; tries += 1) {
    const answer = await fetch(process.env.BROKER + path, {
      method, body, headers: headers ?? { Authorization: `Bearer ${jwt()}` }, signal: AbortSignal.timeout(10_000),
    });
    if (answer.ok) return answer.json();
    if (![429, 503].includes(answer.status) || tries === 3) throw new Error(`${answer.status} ${(await answer.json()).code}`);
    await sleep(1000 * Number(answer.headers.get('Retry-After') ?? 1));
  }
}

export function report(user, session, type, data = {}) {
  // The id makes a repeat harmless.
  const event = { userId: user, type, data, eventId: randomUUID() };
  return send('POST', `/api/sessions/${encodeURIComponent(session)}/events`, JSON.stringify(event));
}

// Returns `approved`, `denied`, `timed_out` or `withdrawn`, after a minute at most.
export async function ask(user, session) {
  const { requestId } = await report(user, session, 'approval_request');
  for (;;) {
    const { status } = await send('GET', `/api/approval/${requestId}`);
    if (status !== 'pending') return status;
    await sleep(1000);
  }
}

// Returns how many phones ring.
export async function ring(caller, receiver, call, type = 'audio') {
  const data = { sessionId: call, type, initiator: { uid: caller }, receiver: { uid: receiver }, receiverType: 'user' };
  const body = JSON.stringify({ trigger: 'call_initiated', data });
  const signature = createHmac('sha256', secret('WEBHOOK_SECRET')).update(body).digest('hex');
  return (await send('POST', '/webhooks/call', body, { 'X-CometChat-Signature': signature })).rang;
}

const [command, ...words] = process.argv.slice(2);
const commands = { report: async (...words) => (await report(...words)).pushes, ask, ring };
if (!(command in commands)) throw new Error('backend report USER SESSION TYPE | ask USER SESSION | ring CALLER RECEIVER CALL');
console.log(await commands[command](...words));
