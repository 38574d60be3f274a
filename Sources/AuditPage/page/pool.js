// Bundles checked by several threads at once, handed out in the log's order.

import { checkBundle } from './bundles.js';
import { told, Unable, untold } from './findings.js';
import { sourceOf } from './source.js';
import { Tiles } from './tiles.js';

const batch = 16;
const waitingFor = 2;

const trusted = globalThis.trustedTypes?.createPolicy('threads', { createScriptURL: (url) => url });

/** A thread that runs this page's own program. `address`: of that program, which in a file is one classic script. */
export function startThread(address, name) {
    const type = address.startsWith('blob:') ? 'classic' : 'module';
    return new Worker(trusted?.createScriptURL(address) ?? address, { type, name });
}

/** The results of the bundles from ..< to; what could not be read is told in its place. */
async function checkBatch(source, { size, from, to, keepsHashes }) {
    const tiles = new Tiles(source, size), results = [];
    for (let index = from; index < to; index++) results.push(checkBundle(tiles, index, keepsHashes).catch((error) => ({ failure: told(error) })));
    return Promise.all(results);
}

/** The thread's side: answers each message `{number, size, from, to, keepsHashes}` with its bundles. The first message says where the log is. */
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

    /** `threads`: how many beside this one, which does it alone if there are none; `program`: this program's address; `place`: the log's. */
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

    /** The results of the full bundles 0 ..< count, in order (see `checkBundle`); what a thread could not check is thrown in its turn. */
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
        // Its failure may come before its turn.
        answer.catch(() => {});
        this.#workers[number % this.#workers.length].postMessage({ number, size, from, to, keepsHashes });
        return answer;
    }

    end() {
        for (const worker of this.#workers) worker.terminate();
        this.#fail('stopped');
    }
}

/** What a result says is wrong, as the error that it was. */
export function failureOf(result) {
    return result.failure ? untold(result.failure) : null;
}
