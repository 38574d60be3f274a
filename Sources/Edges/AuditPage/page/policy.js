// Reads a policy file: the timing of the log, the longest life of a token, the names of the templates.

import { hex, textOf } from './bytes.js';
import { Finding, Unable } from './findings.js';
import { policyPath } from './tiles.js';
import { sha256 } from './tree.js';

const longestPolicy = 1_048_576, mostPolicies = 1_000;
const lives = ['deviceLifeSeconds', 'activityLifeSeconds', 'sessionLifeSeconds'];
const standardTiming = { hour: 3_600, day: 86_400, seals: 64 };

const deepest = 33;

/** A number, true, false or null, as it is spelled. */
class Word {
    constructor(spelling) {
        this.spelling = spelling;
    }
}

function readText(token) {
    const text = JSON.parse(token);
    if (!text.isWellFormed()) throw new SyntaxError('half a surrogate pair');
    return text;
}

/**
 * Reads JSON by the grammar of audit/log-format.md: objects as Maps. Throws for any other text.
 * JSON.parse alone would accept repeated names and half surrogate pairs, and lose the spelling of numbers.
 */
function readJSON(text) {
    JSON.parse(text);
    const tokens = text.match(/"[^"\\]*(?:\\.[^"\\]*)*"|[{}[\]]|[^\s{}[\]:,"]+/g);
    let at = 0;
    const value = (depth) => {
        const token = tokens[at++];
        if (token[0] === '"') return readText(token);
        if (token !== '{' && token !== '[') return new Word(token);
        if (depth === deepest) throw new RangeError('too deep');
        const members = new Map();
        for (let index = 0; tokens[at] !== '}' && tokens[at] !== ']'; index++) {
            const name = token === '{' ? readText(tokens[at++]) : index;
            if (members.has(name)) throw new SyntaxError('a repeated name');
            members.set(name, value(depth + 1));
        }
        at += 1;
        return token === '{' ? members : [...members.values()];
    };
    return value(0);
}

const isObject = (value) => value instanceof Map;

/** Returns a whole number from 1 to `most` in plain digits. Returns null for any other value. */
function whole(value, most = Number.MAX_SAFE_INTEGER) {
    const number = value instanceof Word && /^[1-9][0-9]{0,15}$/.test(value.spelling) ? Number(value.spelling) : null;
    return number <= most ? number : null;
}

/** Returns `{hour, day, seals}` of a policy's member `ledger`, or null if it is malformed. */
function timingOf(ledger) {
    if (!isObject(ledger)) return null;
    const hour = whole(ledger.get('hourSeconds'), 3_600), day = whole(ledger.get('daySeconds'), 86_400);
    const seals = whole(ledger.get('batchSeals'), 10_000);
    return hour && day && seals && day % hour === 0 ? { hour, day, seals } : null;
}

/** Returns `{timing, longest, templates}` of a policy's bytes, or null if they aren't a policy. `timing` is null if it is unusable. */
export function readPolicy(bytes) {
    const text = textOf(bytes);
    let policy;
    try {
        policy = text === null ? null : readJSON(text);
    } catch {
        return null;
    }
    if (!isObject(policy)) return null;
    const limits = policy.get('limits') ?? new Map(), templates = policy.get('templates') ?? new Map(), ledger = policy.get('ledger');
    if (!isObject(limits) || !isObject(templates)) return null;
    const room = limits.get('roomLifeSeconds');
    if (room !== undefined && !isObject(room)) return null;
    const named = [room && (room.get('max') ?? null), ...lives.map((name) => limits.get(name))].filter((life) => life !== undefined).map((life) => whole(life));
    if (named.includes(null)) return null;
    return { timing: ledger === undefined ? standardTiming : timingOf(ledger), longest: Math.max(0, ...named), templates: new Set(templates.keys()) };
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
