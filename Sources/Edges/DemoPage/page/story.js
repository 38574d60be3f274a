// The demo: connects phones, broker and log, and narrates.

import { byID, element, fill } from '../../audit/page/dom.js';
import { counted } from '../../audit/page/format.js';
import { Broker, clock } from './broker.js';
import { Log } from './log.js';
import { Phone, say } from './phone.js';

const roundMs = 1_000, pushRoundMs = 250, pushRounds = 60, proofMs = 2_500;

class Story {
    ann = new Phone('Ann', (phone, event) => this.happened(phone, event));
    ben = new Phone('Ben', (phone, event) => this.happened(phone, event));
    broker = new Broker();
    log = new Log();
    pushes = 0;
    isPushing = false;
    isOver = false;
    /** The log has the purges of this room. */
    isDocumented = false;
    verdict = null;
    isBusy = false;

    begin() {
        const life = byID('life');
        const showLife = () => say(byID('life-text'), `${life.value} seconds`);
        life.addEventListener('input', showLife);
        showLife();
        byID('next').addEventListener('click', () => this.#act());
        byID('check').addEventListener('click', () => this.check());
        // The page's first words are in its HTML, so that it isn't empty while the program loads.
        document.documentElement.dataset.step = 'start';
        this.show();
        this.#watch();
    }

    /** `step`: a name for tests. `what`: what just happened. `why`: what it means. */
    tell(step, what, why) {
        document.documentElement.dataset.step = step;
        fill('told', element('p', {}, what), element('p', {}, why));
    }

    async #watch() {
        for (;;) {
            // A broker that restarts or stops is no reason to stop looking.
            await Promise.allSettled([this.broker.update(), this.log.update()]);
            if (this.broker.isOver && !this.isOver) this.#end();
            if (this.log.hasAllPurges && this.isOver && !this.isDocumented) this.#document();
            this.show();
            await new Promise((resolve) => setTimeout(resolve, roundMs));
        }
    }

    /** The next step of the story: its words, and its action. No action means that something has to happen first. */
    get #next() {
        const { ann, ben } = this;
        if (!ann.room) return ['Ann makes a room', () => this.#create()];
        if (this.isOver) {
            if (!this.log.hasAllPurges) return ['The log publishes soon …', null];
            return this.verdict ? ['Play it again', () => location.reload()] : ['Check the log', () => this.check()];
        }
        if (ann.hasEnded || ben.hasEnded) return ['The broker deletes …', null];
        if (!ben.room && !ann.isLocked) return ["Lock Ann's phone", () => ann.lock()];
        // A phone that answered within the last two seconds counts as present, and is not asked.
        if (!ben.room) return Date.now() - ann.lockedAt < proofMs ? ['Ann sleeps …', null] : ['Ben joins with the code', () => this.#accept()];
        if (ben.isLocked) return this.#whileBenSleeps;
        if (!ben.isHere) return ['Ben opens the chat', () => ben.enter()];
        if (ann.isLocked) return ann.push ? ['Ann taps the notification', () => ann.unlock()] : ['The broker asks …', null];
        if (!ann.push) return ["Lock Ann's phone", () => ann.lock()];
        if (ben.isBrowser && !ben.push) return ["Lock Ben's phone", () => ben.lock()];
        return [ann.isHere ? 'The room ends by itself …' : 'Ann opens the chat', ann.isHere ? null : () => ann.enter()];
    }

    get #whileBenSleeps() {
        const { ann, ben } = this;
        if (!ben.isBrowser || ben.push || ann.isLocked) return ["Unlock Ben's phone", () => ben.unlock()];
        if (Date.now() - ben.lockedAt < proofMs) return ['Ben sleeps …', null];
        return this.isPushing ? ['The broker asks …', null] : ['Ann leaves and comes again', () => ann.comeAgain()];
    }

    async #act() {
        const [, action] = this.#next;
        if (!action || this.isBusy) return;
        this.isBusy = true;
        await this.ann.try(action);
        this.isBusy = false;
        this.show();
    }

    async #create() {
        const seconds = Number(byID('life').value);
        await this.ann.create(seconds);
        this.log.add('Ann', this.ann.room.credentials().ref);
        this.broker.begin(this.ann.room, seconds);
        await this.broker.update();
        this.tell('made', `The broker sealed Ann's push address: ${this.broker.bytes} bytes that it can't open alone.`,
            'They open with the room id, which is on her phone. Ann gives Ben the join code; he exchanges it for the room id, once.');
    }

    async #accept() {
        await this.ben.accept(this.ann.code);
        this.log.add('Ben', this.ben.room.credentials().ref);
        if (this.ann.isLocked) this.#tellAsking();
        await this.broker.update();
    }

    #tellAsking() {
        this.tell('asking', 'Ben is in. Ann seems to be connected, so the broker asks her phone for a sign of life.',
            'It waits two seconds. Most chat servers would believe the open connection, and Ben would wait for nobody.');
    }

    /** Handles what happened to a phone. */
    happened(phone, event) {
        const other = phone === this.ann ? this.ben : this.ann;
        switch (event.type) {
            case 'failed':
                this.tell('failed', event.error.message, 'Try again, or reload this page.');
                break;
            case 'subscribed':
                this.tell('subscribed', "This browser is Ben's phone now. Its push service gave it an address.",
                    'Lock his phone later, and come again as Ann: then this browser shows a notification, also while the page is closed.');
                break;
            case 'locked':
                this.tell('locked', `${phone.name}'s phone is locked. The app sleeps, but its connection stays open.`,
                    'To the broker nothing has changed: it still sees the connection.');
                break;
            case 'left':
                this.tell('left', `${phone.name} left the chat, and the app said so.`, `Nobody is pushed to until ${other.name} comes again.`);
                break;
            case 'unlocked':
                if (!phone.hasEnded && phone.room) this.tell('back', `${phone.name} is back. The broker only knows that both are there.`, this.#whyNoPush);
                break;
            case 'joined': case 'peer_left':
                if (event.delivery === 'queued') this.#expectPush(phone, other, event.type === 'peer_left');
                if (event.delivery === 'throttled') {
                    this.tell('throttled', `${other.name} is away, and was pushed to less than 30 seconds ago.`, 'So the broker waits before it rings again.');
                }
                break;
            case 'peer_joined':
                if (phone.isHere && other.isHere && !other.isLocked && !this.pushes) {
                    this.tell('together', 'Both are in the chat. The broker only knows that both are there.', this.#whyNoPush);
                }
                break;
        }
        this.show();
    }

    get #whyNoPush() {
        return `While both are present, nothing is pushed. The room ends at ${clock(this.broker.expiresAt)}, whatever they do.`;
    }

    /** Waits for the push to `absent`, which the broker has queued because `present` is there. `wasAsked`: the absent phone did not answer. */
    async #expectPush(present, absent, wasAsked) {
        this.isPushing = true;
        this.tell('pushing', `${wasAsked ? 'No sign of life: ' : ''}${absent.name} is away. The broker sends one push.`,
            `${present.name}'s room id opens ${absent.name}'s address for it, and is forgotten again.`);
        for (let round = 0; round < pushRounds; round++) {
            if (await absent.lookForPush()) {
                if (!absent.isBrowser) this.pushes += 1;
                this.tell('pushed', `${absent.name}'s phone rings: “${absent.push.text}”.`, absent.isBrowser
                    ? `The push service saw the address, the time and a body that only this browser opens: no ${present.name}, no code, no message.`
                    : `Apple saw the address, the time and a constant text: no ${present.name}, no code, no message. Unfold it on the phone.`);
                break;
            }
            await new Promise((resolve) => setTimeout(resolve, pushRoundMs));
        }
        this.isPushing = false;
        this.show();
    }

    #end() {
        this.isOver = true;
        for (const phone of [this.ann, this.ben]) phone.end();
        this.tell('over', 'The room is over. The broker has deleted the push addresses.',
            `At ${clock(this.broker.keyEnd)} it destroys the key too. Then even an older copy of its database never opens again.`);
    }

    #document() {
        this.isDocumented = true;
        this.tell('documented', "The public log shows it: each address was sealed, and deleted. It names nobody.",
            'Without the phones, nobody can say which entries belong together. Nobody can change them unnoticed: check it.');
    }

    async check() {
        byID('check').disabled = true;
        say(byID('checked'), 'Reading the log …');
        const verdict = await this.log.check().catch((error) => ({ isGood: false, why: error.message }));
        byID('check').disabled = false;
        if (verdict.isGood) {
            fill('checked', element('p', { class: 'good' }, `✓ The log is right in itself: ${counted(verdict.size, 'entry', 'entries')}, checked in this browser.`),
                element('p', {}, "It was not compared with anything earlier. The auditor's page keeps its head and compares at each visit."));
        } else {
            fill('checked', element('p', { class: 'bad' }, `✗ Not verified: ${verdict.why ?? 'a step was left out'}`));
        }
        if (!this.isOver || !verdict.isGood) return;
        this.verdict = verdict;
        const opened = this.log.opsOf('Ann').filter((op) => op === 'token.opened').length;
        this.tell('checked', `Checked in this browser: Ann's address was sealed, opened for ${counted(opened, 'push', 'pushes')}, and deleted.`,
            'The log proves what the broker signed, not that nothing was done unrecorded. Ann would notice: she knows how often her phone rang.');
        this.show();
    }

    show() {
        const { ann, ben, broker } = this, button = byID('next'), [words, action] = this.#next;
        say(button, words);
        button.setAttribute('aria-disabled', String(!action || this.isBusy));
        byID('life-row').hidden = ann.room !== null;
        // What the phone says about itself before there is a room.
        ann.plan = ann.room ? '' : "With the next step, the app leaves this phone's push address with the broker.";
        ben.plan = ben.room ? '' : ann.code ? 'Ann tells him the code.' : 'He waits for a code from Ann.';
        ann.show();
        ben.show();
        broker.show();
        const isConnected = ann.isHere || ben.isHere;
        broker.showReaders({ isAccepted: ben.room !== null, isConnected, isPushing: this.isPushing, pushes: this.pushes });
    }
}

new Story().begin();
