// Values that this browser keeps between visits: the last verified head, the visitor's own key, witnesses' keys.

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

    /** The signed head kept for a key, and when it was kept. */
    head(vkey) {
        const note = this.#get(`head ${vkey}`);
        return note ? { note, at: this.#get(`seen ${vkey}`) ?? '' } : null;
    }

    keep(vkey, note) {
        this.#set(`head ${vkey}`, note);
        this.#set(`seen ${vkey}`, new Date().toISOString().slice(0, 19).replace('T', ' ') + ' UTC');
    }

    get witnesses() {
        return this.#get(`witnesses ${this.place}`) ?? '';
    }

    setWitnesses(text) {
        this.#set(`witnesses ${this.place}`, text || null);
    }

    forget(vkey) {
        for (const name of [`key ${this.place}`, `own ${this.place}`, `witnesses ${this.place}`, `head ${vkey}`, `seen ${vkey}`]) this.#set(name, null);
    }
}
