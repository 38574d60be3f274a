// What the broker stores of this room, and who could read Ann's push address.

import { byID, element, fill } from '../../audit/page/dom.js';
import { counted, span } from '../../audit/page/format.js';
import { say } from './phone.js';

const epochSeconds = 300;
export const clock = (seconds) => new Date(seconds * 1000).toLocaleTimeString('en-GB', { hour: '2-digit', minute: '2-digit', second: '2-digit' });

export class Broker {
    /** Sealed push addresses of the room, and their bytes. */
    tokens = 0;
    bytes = 0;
    joinCodes = 0;
    isKeyGone = false;
    /** The room's addresses were seen in the store. */
    hasSealed = false;
    /** Sealed push addresses of other rooms. */
    others = 0;
    /** Unix seconds. Null before there is a room. */
    expiresAt = null;
    #lines = Object.fromEntries(['tokens', 'until', 'code', 'key', 'others'].map((name) => [name, element('p')]));
    #left = element('meter', { min: 0, 'aria-label': "What is left of the room's life" });
    #readers = new Map();

    constructor() {
        const { tokens, until, code, key, others } = this.#lines;
        fill('stored', tokens, until, this.#left, code, key, others);
    }

    /** Unix seconds at which the last key that opens the room's addresses is destroyed: an epoch is kept for one more. */
    get keyEnd() {
        return (Math.floor(this.expiresAt / epochSeconds) + 2) * epochSeconds;
    }

    get isOver() {
        return this.expiresAt !== null && this.hasSealed && this.tokens === 0;
    }

    begin(room, seconds) {
        this.expiresAt = Math.floor(room.expiresAt / 1000);
        this.#left.max = seconds;
    }

    /** Reads the counts from the demo. */
    async update() {
        const answer = await fetch('holdings');
        if (!answer.ok) return;
        const { sealed, joinCodes, oldestKey } = await answer.json();
        const own = sealed.find(({ expiresAt }) => Date.parse(expiresAt) / 1000 === this.expiresAt);
        this.tokens = own?.tokens ?? 0;
        this.bytes = own?.bytes ?? this.bytes;
        this.joinCodes = joinCodes;
        if (this.tokens > 0) this.hasSealed = true;
        this.isKeyGone = this.expiresAt !== null && Date.parse(oldestKey) / 1000 > Math.floor(this.expiresAt / epochSeconds) * epochSeconds;
        this.others = sealed.reduce((sum, { tokens }) => sum + tokens, 0) - this.tokens;
    }

    show() {
        const now = Date.now() / 1000, { tokens, until, code, key, others } = this.#lines, left = this.expiresAt - now;
        say(tokens, this.tokens > 0 ? `${counted(this.tokens, 'sealed push address', 'sealed push addresses')}: ${this.bytes} bytes that it can't open alone.`
            : this.isOver ? 'No push address. They were deleted.' : 'No push address yet.');
        this.#left.hidden = until.hidden = !(this.tokens > 0);
        this.#left.value = Math.max(0, left);
        say(until, `Deleted at ${clock(this.expiresAt)}, in ${span(Math.max(0, left))}.`);
        say(code, this.joinCodes > 0 ? 'The fingerprint of a join code that nobody has used yet.' : '');
        say(key, this.expiresAt === null ? '' : this.isKeyGone ? 'The key that could open a copy of them is destroyed.'
            : `The key for them is destroyed at ${clock(this.keyEnd)}, five to ten minutes after their end.`);
        say(others, this.others > 0 ? `${this.others} of other rooms.` : '');
    }

    /** `scene`: `{isAccepted, isConnected, isPushing, pushes}`: both sides are in, a socket is open, a push is under way, how many Apple got. */
    showReaders({ isAccepted, isConnected, isPushing, pushes }) {
        const isThere = this.tokens > 0, older = this.isKeyGone ? 'No, and no copy opens any more: the key is destroyed.'
            : `No. An older copy of the database needs the room id too, and this key opens it until ${clock(this.keyEnd)} only.`;
        const nothing = 'No: the broker has not got it yet.';
        const rows = this.expiresAt === null ? [
            ['A thief of the disk', nothing], ['… who has the key file too', nothing], ['Who controls the running broker', nothing], ['Ben', 'No, never.'],
            ['Apple', 'Yes: it gave the address out.'],
        ] : [
            ['A thief of the disk', isThere ? 'No: the box has no key beside it.' : 'No: it is deleted.'],
            ['… who has the key file too', !isThere ? older : isPushing ? 'Yes, while this push is under way: two minutes at most.'
                : isAccepted ? 'No: the room id is missing, and only the phones keep it.' : 'Only by guessing the join code, among 10¹⁵.'],
            ['Who controls the running broker', isThere && isConnected ? 'Yes, while a phone of the room is connected.' : 'No.'],
            ['Ben', 'No, never.'],
            ['Apple', `Yes: it gave the address out. It saw ${pushes > 0 ? `${counted(pushes, 'push', 'pushes')}, not from whom` : 'nothing of the room'}.`],
        ];
        for (const [name, words] of rows) {
            if (!this.#readers.has(name)) {
                const pair = [element('dt', {}, name), element('dd')];
                byID('readers').append(...pair);
                this.#readers.set(name, pair);
            }
            say(this.#readers.get(name)[1], words);
        }
    }
}
