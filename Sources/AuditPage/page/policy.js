// Reads a policy file: the timing of the log, the longest life of a token, the names of the templates.

import { hex, textOf } from './bytes.js';
import { Finding, Unable } from './findings.js';
import { policyPath } from './tiles.js';
import { sha256 } from './tree.js';

const longestPolicy = 1_048_576, mostPolicies = 1_000;
const lives = ['deviceLifeSeconds', 'activityLifeSeconds', 'sessionLifeSeconds'];
const standardTiming = { hourSeconds: 3_600, daySeconds: 86_400, batchSeals: 64 };

const isObject = (value) => typeof value === 'object' && value !== null && !Array.isArray(value);
const isWhole = (value, most = Number.MAX_SAFE_INTEGER) => Number.isSafeInteger(value) && value >= 1 && value <= most;

/** Returns `{hour, day, seals}` of a policy's member `ledger`, or null if it is malformed. */
function timingOf(ledger) {
    if (!isObject(ledger)) return null;
    const { hourSeconds: hour, daySeconds: day, batchSeals: seals } = ledger;
    return isWhole(hour, 3_600) && isWhole(day, 86_400) && day % hour === 0 && isWhole(seals, 10_000) ? { hour, day, seals } : null;
}

/** Returns `{timing, longest, templates}` of a policy's bytes, or null if they aren't a policy. `timing` is null if it is unusable. */
export function readPolicy(bytes) {
    let policy;
    try {
        policy = JSON.parse(textOf(bytes));
    } catch {
        return null;
    }
    if (!isObject(policy)) return null;
    const { limits = {}, templates = {}, ledger = standardTiming } = policy;
    if (!isObject(limits) || !isObject(templates)) return null;
    const { roomLifeSeconds: room } = limits;
    if (room !== undefined && !isObject(room)) return null;
    const named = [room === undefined ? undefined : room.max ?? null, ...lives.map((name) => limits[name])].filter((life) => life !== undefined);
    if (!named.every((life) => isWhole(life))) return null;
    return { timing: timingOf(ledger), longest: Math.max(0, ...named), templates: new Set(Object.keys(templates)) };
}

/** The policies of a log. Each is read once. */
export class Policies {
    #read = new Map();

    /** `tell(digest, text)` is called for each policy file. */
    constructor(source, tell) {
        this.source = source;
        this.tell = tell;
    }

    get count() {
        return this.#read.size;
    }

    /** Returns the result of `readPolicy`. `isTiming`: whether the policy determines the log's timing. */
    async of(digest, isTiming) {
        const policy = this.#read.get(digest) ?? await this.#fetch(digest);
        if (isTiming && !policy.timing) throw new Finding('damaged', 'has no valid timing for a log', { file: policyPath(digest) });
        return policy;
    }

    async #fetch(digest) {
        if (this.#read.size === mostPolicies) throw new Unable(`This log names more than ${mostPolicies} policies, too many for this page.`);
        const file = policyPath(digest), bytes = await this.source.read(file, longestPolicy);
        if (!bytes) throw new Finding('missing', 'is missing', { file });
        if (hex(await sha256(bytes)) !== digest) throw new Finding('damaged', "doesn't match the SHA-256 in its name", { file });
        this.tell(digest, new TextDecoder().decode(bytes));
        const policy = readPolicy(bytes);
        if (!policy) throw new Finding('damaged', 'is not a policy', { file });
        this.#read.set(digest, policy);
        return policy;
    }
}
