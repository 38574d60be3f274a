// Values that this browser keeps between visits: the last verified head, a proven contradiction, the visitor's own key, witnesses' keys.

import { presentTime } from './format.js';

const prefix = 'mayfly audit ';

/** Storage that may be forbidden. Then nothing is kept, and the page shows this. */
export class Memory {
    /** `place`: the page's address, under which its log's key is kept. */
    constructor(place) {
        this.place = place;
        try {
            this.storage = window.localStorage;
            this.storage.setItem(`${prefix}test`, '');
            this.storage.removeItem(`${prefix}test`);
        } catch {
            this.storage = null;
        }
    }

    get isThere() {
        return this.storage !== null;
    }

    #get(name) {
        return this.storage?.getItem(prefix + name) ?? null;
    }

    #set(name, value) {
        try {
            if (value === null) this.storage?.removeItem(prefix + name); else this.storage?.setItem(prefix + name, value);
        } catch {
            // The storage is full or forbidden now. The visit continues without it.
            this.storage = null;
        }
    }

    /** The key of the last check of this page's log, and whether it came from the visitor. */
    get key() {
        return this.#get(`key ${this.place}`);
    }

    get isOwnKey() {
        return this.#get(`own ${this.place}`) === 'yes';
    }

    setKey(vkey, isOwn) {
        this.#set(`key ${this.place}`, vkey);
        this.#set(`own ${this.place}`, isOwn ? 'yes' : null);
    }

    /** The signed head kept for a key, when it was kept, and when the first one was. */
    head(vkey) {
        const note = this.#get(`head ${vkey}`), at = this.#get(`seen ${vkey}`) ?? '';
        return note ? { note, at, since: this.#get(`since ${vkey}`) ?? at } : null;
    }

    keep(vkey, note) {
        const isFirst = this.head(vkey) === null;
        this.#set(`head ${vkey}`, note);
        this.#set(`seen ${vkey}`, presentTime());
        if (isFirst) this.#set(`since ${vkey}`, presentTime());
    }

    /** Two heads that this key signed and that contradict each other, as `{old, now, isCut, at}`, or null. */
    contradiction(vkey) {
        try {
            return JSON.parse(this.#get(`contradiction ${vkey}`));
        } catch {
            return null;
        }
    }

    setContradiction(vkey, pair) {
        this.#set(`contradiction ${vkey}`, pair && JSON.stringify(pair));
    }

    get witnesses() {
        return this.#get(`witnesses ${this.place}`) ?? '';
    }

    setWitnesses(text) {
        this.#set(`witnesses ${this.place}`, text || null);
    }

    forgetHead(vkey) {
        for (const name of ['head', 'seen', 'since', 'contradiction']) this.#set(`${name} ${vkey}`, null);
    }

    forget(vkey) {
        for (const name of ['key', 'own', 'witnesses']) this.#set(`${name} ${this.place}`, null);
        this.forgetHead(vkey);
    }
}
