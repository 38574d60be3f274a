// Checks bundles in several threads. Results come in the log's order.

import { checkBundle } from './bundles.js';
import { told, Unable, untold } from './findings.js';
import { sourceOf } from './source.js';
import { Tiles } from './tiles.js';

const batch = 16;
const waitingFor = 2;

const trusted = globalThis.trustedTypes?.createPolicy('threads', { createScriptURL: (url) => url });

/** Returns the address of a script of this page, as the page's policy wants it. */
export const scriptURL = (address) => trusted?.createScriptURL(address) ?? address;

/** A thread with this page's program. `address`: the program's address. In a file the program is a classic script. */
export function startThread(address, name) {
    const type = address.startsWith('blob:') ? 'classic' : 'module';
    return new Worker(scriptURL(address), { type, name });
}

/** Returns the results of the bundles from ..< to. A bundle that can't be read has an error as its result. */
async function checkBatch(source, { size, from, to, keepsHashes }) {
    const tiles = new Tiles(source, size), results = [];
    for (let index = from; index < to; index++) results.push(checkBundle(tiles, index, keepsHashes).catch((error) => ({ failure: told(error) })));
    return Promise.all(results);
}

/** Runs in the thread. Answers each message `{number, size, from, to, keepsHashes}` with its bundles. The first message is the log's place. */
export function serveBundles(scope) {
    let source = null;
    scope.onmessage = async ({ data }) => {
        if (data.place) {
            source = sourceOf(data.place);
            return;
        }
        const results = await checkBatch(source, data), transfer = [];
        for (const result of results) {
            if (!result.columns) continue;
            const sent = result.columns.sent();
            result.columns = sent.message;
            transfer.push(...sent.transfer);
        }
        scope.postMessage({ number: data.number, results }, transfer);
    };
}

export class Pool {
    #workers = [];
    #waiting = new Map();

    /** `threads`: the number of additional threads, possibly none. `program`: this program's address. `place`: the log's place. */
    constructor(threads, program, place) {
        this.source = sourceOf(place);
        for (let i = 0; i < threads; i++) {
            const worker = startThread(program, 'bundles');
            worker.onmessage = ({ data }) => this.#waiting.get(data.number)?.resolve(data.results);
            worker.onerror = () => this.#fail('A checking thread ended. It may have run out of memory.');
            worker.postMessage({ place });
            this.#workers.push(worker);
        }
    }

    #fail(words) {
        for (const { reject } of this.#waiting.values()) reject(new Unable(words));
    }

    /** Yields the results of the full bundles 0 ..< count in order (see `checkBundle`). Errors of threads are thrown in their turn. */
    async *results(size, count, keepsHashes) {
        const batches = Math.ceil(count / batch), ahead = waitingFor * Math.max(1, this.#workers.length);
        const started = [];
        for (let number = 0; number < batches; number++) {
            for (let next = started.length; next < Math.min(batches, number + ahead); next++) started.push(this.#start(next, size, count, keepsHashes));
            const results = await started[number];
            started[number] = null;
            this.#waiting.delete(number);
            yield* results;
        }
    }

    #start(number, size, count, keepsHashes) {
        const from = number * batch, to = Math.min(count, from + batch);
        if (this.#workers.length === 0) return checkBatch(this.source, { size, from, to, keepsHashes });
        const answer = new Promise((resolve, reject) => this.#waiting.set(number, { resolve, reject }));
        // Without this handler, a failure before its turn would be reported as unhandled.
        answer.catch(() => {});
        this.#workers[number % this.#workers.length].postMessage({ number, size, from, to, keepsHashes });
        return answer;
    }

    end() {
        for (const worker of this.#workers) worker.terminate();
        this.#fail('stopped');
    }
}

/** Returns the error of a result. */
export function failureOf(result) {
    return result.failure ? untold(result.failure) : null;
}
