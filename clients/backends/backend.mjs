// A back end that reports events, asks for approvals and rings phones, with Node 20 alone.

import { createHmac, randomUUID } from 'node:crypto';
import { existsSync, readFileSync, realpathSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';

// The first line of a file: while a webhook's secret is replaced, the broker's file has two.
const secret = (variable) => readFileSync(process.env[variable], 'utf8').split('\n')[0].trim();

// Returns a JWT that is valid for five minutes, signed with the login's HS256 key.
function jwt() {
  const now = Math.floor(Date.now() / 1000);
  const text = [{ alg: 'HS256', typ: 'JWT' }, { sub: 'back-end', scope: 'broker.notify', iat: now, exp: now + 300 }]
    .map((part) => Buffer.from(JSON.stringify(part)).toString('base64url')).join('.');
  return `${text}.${createHmac('sha256', secret('LOGIN_SECRET')).update(text).digest('base64url')}`;
}

// Retries lost answers, 429 and 502 to 504 twice, after Retry-After, a minute at most, or a second. Throws other errors. The broker never redirects.
async function send(method, path, body, headers) {
  for (let tries = 1; ; tries += 1) {
    let answer, result;
    try {
      answer = await fetch(process.env.BROKER + path, {
        method, body, headers: headers ?? { Authorization: `Bearer ${jwt()}` }, signal: AbortSignal.timeout(10_000), redirect: 'error',
      });
      // A proxy's refusal may be no JSON.
      result = await (answer.ok ? answer.json() : answer.json().catch(() => ({})));
    } catch (lost) {
      if (tries === 3) throw lost;
      await sleep(1000);
      continue;
    }
    if (answer.ok) return result;
    if (![429, 502, 503, 504].includes(answer.status) || tries === 3) throw new Error(`${answer.status} ${result.code}`);
    const wait = answer.headers.get('Retry-After') ?? '';
    await sleep(/^\d+$/.test(wait) ? 1000 * Math.min(Number(wait), 60) : 1000);
  }
}

// A repeat with the same `eventId` within twelve hours pushes nothing.
export function report(user, session, type, data = {}, eventId = randomUUID()) {
  const event = { userId: user, type, data, eventId };
  return send('POST', `/api/sessions/${encodeURIComponent(session)}/events`, JSON.stringify(event));
}

// Returns `approved`, `denied`, `timed_out` or `withdrawn`. Takes a minute at most, or longer if it is told to retry later.
export async function ask(user, session, eventId) {
  const { requestId } = await report(user, session, 'approval_request', {}, eventId);
  for (;;) {
    const { status } = await send('GET', `/api/approval/${encodeURIComponent(requestId)}`);
    if (typeof status !== 'string') throw new Error('This is not the broker.');
    if (status !== 'pending') return status;
    await sleep(1000);
  }
}

// Returns how many phones ring: none if they have rung for this call.
export async function ring(caller, receiver, call, type = 'audio') {
  const data = { sessionId: call, type, initiator: { uid: caller }, receiver: { uid: receiver }, receiverType: 'user' };
  const body = JSON.stringify({ trigger: 'call_initiated', data });
  const signature = createHmac('sha256', secret('WEBHOOK_SECRET')).update(body).digest('hex');
  return (await send('POST', '/webhooks/call', body, { 'X-CometChat-Signature': signature })).rang;
}

const [, program, command, ...words] = process.argv;
// The status is for `task_complete`. Other events ignore it.
const tell = async (user, session, type, eventId) => (await report(user, session, type, { status: 'success' }, eventId)).pushes;
const commands = { report: tell, ask, ring };
// A program that imports this may have no file.
if (program && existsSync(program) && realpathSync(program) === fileURLToPath(import.meta.url)) {
  if (!Object.hasOwn(commands, command)) throw new Error('backend report USER SESSION TYPE [EVENT] | ask USER SESSION | ring CALLER RECEIVER CALL');
  console.log(await commands[command](...words));
}
