// One phone of the demo: its app, which uses the JavaScript client, and its screen.

import { byID, element } from '../../audit/page/dom.js';
import { scriptURL } from '../../audit/page/pool.js';
import { Client, JoinCode } from './mayfly.js';
import { subscribe } from './push.js';

const random = (count) => Array.from(crypto.getRandomValues(new Uint8Array(count)), (byte) => byte.toString(16).padStart(2, '0')).join('');

/** Sets a text only if it differs, so that readers and selections aren't disturbed. */
export function say(node, text) {
    if (node.textContent !== text) node.textContent = text;
}

export class Phone {
    /** An address of Apple's, or this browser's subscription. */
    #token = random(32);
    /** The service worker's registration, if this browser is the phone. */
    #browser = null;
    room = null;
    /** The join code of a room that this phone made. */
    code = null;
    /** The chat is open in the app. */
    isHere = false;
    isLocked = false;
    /** Unix ms. */
    lockedAt = 0;
    hasEnded = false;
    peerIsHere = false;
    /** The last push: `{id, text}`. */
    push = null;
    /** What the person will do before there is a room. */
    plan = '';
    #home = new URL(`phones/${random(8)}`, document.baseURI).href;
    #client = new Client(this.#home, { environment: 'sandbox' });
    #session = null;
    #wake = () => {};
    #parts = {};

    /** `happened(phone, event)`: called after each change, with an event of the client, or one named `made`, `locked`, `unlocked`, `left`, `failed`. */
    constructor(name, happened) {
        [this.name, this.happened] = [name, happened];
        const button = (name, text, action) => {
            this.#parts[name] = element('button', { type: 'button', click: () => this.try(action) }, text);
            return this.#parts[name];
        };
        const line = (name, of = 'p', more = {}) => (this.#parts[name] = element(of, more));
        const body = byID(name.toLowerCase()).querySelector('.body');
        body.replaceChildren(line('clock', 'p', { class: 'clock' }), line('state'), line('join', 'p', { class: 'join code' }), line('hint', 'p', { class: 'quiet' }),
            line('plan'));
        this.#parts.push = element('button', { type: 'button', class: 'push', click: () => this.try(() => this.unlock()) },
            element('strong', {}, 'Chat'), line('text', 'span'));
        this.#parts.seen = element('details', { class: 'seen' }, element('summary', {}, 'Exactly what Apple saw'), line('apple', 'div'));
        body.append(this.#parts.push, this.#parts.seen, element('div', { class: 'actions' },
            button('browse', 'Use this browser as his phone', () => this.useBrowser()), button('unlock', 'Unlock', () => this.unlock()), button('lock', 'Lock the phone', () => this.lock()),
            button('leave', 'Leave the chat', () => this.leave()), button('open', 'Open the chat', () => this.enter()),
            button('end', 'End the room', () => this.room.close())),
            line('warning', 'p', { class: 'quiet' }),
            element('p', { class: 'quiet address' }, line('source', 'span'), line('address', 'span', { class: 'code' })));
        say(this.#parts.warning, "His notifications then come over the internet, from the browser maker's push service.");
        this.show();
    }

    /** Runs an action of the phone. A failure becomes an event. */
    async try(action) {
        try {
            await action();
        } catch (error) {
            this.happened(this, { type: 'failed', error });
        }
    }

    get isBrowser() { return this.#browser !== null; }

    /** Makes this browser the phone: from now on it shows the phone's pushes. */
    async useBrowser() {
        // Browsers ask in a click only, so before the first await.
        await Notification.requestPermission();
        await navigator.serviceWorker.register(scriptURL('sw.js'));
        const registration = await navigator.serviceWorker.ready;
        this.#token = await subscribe(this.#client, registration);
        this.#browser = registration;
        this.#tell({ type: 'subscribed' });
    }

    async create(seconds) {
        const code = JoinCode.random();
        this.room = await this.#client.create({ code, token: this.#token, expiresInSeconds: seconds, joinExpiresInSeconds: seconds });
        this.code = code;
        this.#tell({ type: 'made' });
        this.enter();
    }

    async accept(code) {
        this.room = await this.#client.accept({ code, token: this.#token });
        this.enter();
    }

    /** Opens the chat: from now on this side is present. */
    enter() {
        this.isHere = true;
        // The client listens to the app's state as React Native reports it. A phone that is locked here is suspended before its app hears of it.
        const appState = { currentState: 'active', addEventListener: (_, heard) => {
            this.#wake = () => heard('active');
            return { remove() {} };
        } };
        this.#session = this.room.join({ appState });
        this.#listen(this.#session);
        this.#clear();
        this.show();
    }

    /** Removes the room's notifications, which its person no longer needs. */
    #clear() {
        this.try(async () => (await this.#shown()).forEach((notification) => notification.close()));
    }

    /** The notifications of the room that this browser shows. */
    async #shown() {
        const all = await this.#browser?.getNotifications() ?? [];
        return all.filter(({ data }) => data?.mayfly?.handle === this.room.handle);
    }

    async #listen(session) {
        await this.try(async () => {
            for await (const event of session) if (session === this.#session) this.#hear(event);
        });
    }

    #hear(event) {
        // The app sleeps. What its client says of the silent connection, a real one would say later.
        if (this.isLocked) return;
        if (event.type === 'joined') this.peerIsHere = event.peerPresent;
        if (event.type === 'peer_joined') this.peerIsHere = true;
        if (event.type === 'peer_left') this.peerIsHere = false;
        if (event.type === 'room_closed' || event.type === 'room_gone') this.end();
        this.#tell(event);
    }

    end() {
        this.hasEnded = true;
        this.isHere = false;
        this.peerIsHere = false;
        this.show();
    }

    leave() {
        this.isHere = false;
        this.#session.leave();
        this.#tell({ type: 'left' });
    }

    comeAgain() {
        this.#session.leave();
        this.enter();
    }

    async lock() {
        await fetch(`${this.#home}/suspend`, { method: 'POST' });
        this.isLocked = true;
        this.lockedAt = Date.now();
        this.#tell({ type: 'locked' });
    }

    async unlock() {
        this.isLocked = false;
        await fetch(`${this.#home}/resume`, { method: 'POST' });
        if (this.room && !this.hasEnded && !this.isHere) this.enter();
        else this.#wake();
        this.#clear();
        this.#tell({ type: 'unlocked' });
    }

    /** Looks for a push that has come since the last one. Returns whether there is one. */
    async lookForPush() {
        const found = this.isBrowser ? await this.#lookAtBrowser() : await this.#lookAtSimulator();
        this.show();
        return found;
    }

    async #lookAtBrowser() {
        const [notification] = await this.#shown();
        if (notification) this.push = { id: notification.tag, text: notification.title };
        return notification !== undefined;
    }

    async #lookAtSimulator() {
        const list = await fetch('pushes').then((answer) => answer.json()).catch(() => []);
        const push = list.findLast(({ token }) => token === this.#token);
        if (!push || push.headers['apns-id'] === this.push?.id) return false;
        const { headers, payload, token, at } = push;
        this.push = { id: headers['apns-id'], text: payload.aps.alert.body };
        const rows = [[':path', `/3/device/${token}`], ...Object.entries(headers).sort(), ['at', at]];
        this.#parts.apple.replaceChildren(
            element('dl', {}, rows.map(([name, value]) => [element('dt', {}, name), element('dd', { class: 'code' }, value)]).flat()),
            element('pre', { tabindex: 0, 'aria-label': 'Payload' }, JSON.stringify(payload, null, 1)));
        return true;
    }

    #tell(event) {
        this.show();
        this.happened(this, event);
    }

    get #words() {
        const peer = this.name === 'Ann' ? 'Ben' : 'Ann';
        if (this.isLocked) return 'Locked';
        if (this.hasEnded) return 'The room is over.';
        if (!this.room) return 'The chat app is open.';
        if (!this.isHere) return 'The chat is closed.';
        return this.peerIsHere ? `Chatting with ${peer}` : `Waiting for ${peer}`;
    }

    show() {
        const parts = this.#parts, focused = document.activeElement, isIn = this.room && !this.hasEnded && !this.isLocked;
        document.getElementById(this.name.toLowerCase()).toggleAttribute('data-locked', this.isLocked);
        say(parts.state, this.#words);
        say(parts.clock, new Date().toLocaleTimeString('en-GB', { hour: '2-digit', minute: '2-digit' }));
        say(parts.join, this.code?.display ?? '');
        say(parts.hint, this.code ? 'The join code, for Ben' : '');
        say(parts.text, this.push?.text ?? '');
        say(parts.source, this.isBrowser ? 'Its push address, from its push service: ' : 'Its push address, from Apple: ');
        say(parts.address,
            this.isBrowser ? `${new URL(this.#token.endpoint).origin}/…` : `${this.#token.slice(0, 8)} … ${this.#token.slice(-8)}`);
        const mayBrowse = this.name === 'Ben' && !this.room && !this.isBrowser && 'serviceWorker' in navigator && 'PushManager' in window;
        say(parts.plan, this.plan);
        const shown = {
            plan: this.plan !== '', clock: this.isLocked, push: this.push && this.isLocked, seen: this.push && !this.isBrowser, browse: mayBrowse, warning: mayBrowse, unlock: this.isLocked, lock: isIn, end: isIn,
            leave: isIn && this.isHere, open: isIn && !this.isHere, join: this.code && !this.isLocked && !this.hasEnded,
            hint: this.code && !this.isLocked && !this.hasEnded,
        };
        for (const [name, isShown] of Object.entries(shown)) parts[name].hidden = !isShown;
        // Without this, the keyboard's place would be lost with the button.
        if (focused?.closest('[hidden]')) byID('next').focus({ preventScroll: true });
    }
}
