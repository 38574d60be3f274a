/// The database's schema, drawn once, with what each table gives to a thief who has it without any key.
///
/// No table has a rowid and every key ends in random bytes or a keyed hash, so that order says nothing; keys begin with the
/// expiry, so that rows which expire together lie together and go in one sweep.
enum Schema {
    static let version: Int64 = 9

    /// From the version before.
    static let step = """
        ALTER TABLE entry RENAME COLUMN window TO window_start;
        ALTER TABLE batch RENAME COLUMN window TO window_start;
        ALTER TABLE log RENAME COLUMN window TO window_start;
        """

    static let statements = rooms + audiences

    private static let rooms = """
        -- One row a room, with its join code while that is pending (`pending` set) or used (kept to refuse a second use, ten
        -- minutes at most). `creator` and `retry` are the sealed answers to a create and an accept; each is deleted at
        -- `retry_until`, two minutes later at most, and `creator` already when the creator first uses its member secret. `due`
        -- is when something of the row ends before the room does. Thief: how many rooms live, when each ends, whether it was
        -- accepted or its code is open, whether each side has a token, when each side was last knocked at. `room`, `client`, `member` are keyed or one-way
        -- hashes of 32 random bytes (client ids: keyed by epoch key and room id). `creator_token` and `joiner_token` are purge
        -- ids. With the key file as well: codes can be tried against `code`.
        CREATE TABLE room (
            expires INTEGER NOT NULL,
            room BLOB NOT NULL,
            creator_generation INTEGER NOT NULL, creator_client BLOB NOT NULL, creator_member BLOB NOT NULL,
            creator_proven INTEGER NOT NULL, creator_token BLOB, creator_knocked INTEGER NOT NULL,
            joiner_generation INTEGER, joiner_client BLOB, joiner_member BLOB,
            joiner_proven INTEGER, joiner_token BLOB, joiner_knocked INTEGER,
            due INTEGER, code BLOB, code_expires INTEGER, code_generation INTEGER, short INTEGER,
            pending BLOB, creator BLOB, retry BLOB, retry_until INTEGER,
            PRIMARY KEY (expires, room)
        ) WITHOUT ROWID;
        CREATE UNIQUE INDEX room_by_room ON room (room);
        CREATE UNIQUE INDEX room_by_code ON room (code) WHERE code IS NOT NULL;
        CREATE INDEX room_due ON room (due) WHERE due IS NOT NULL;
        CREATE INDEX room_short ON room (short) WHERE short = 1;

        -- One row a token. Thief: which of the app's topics and environments it is for, which two belong to one room, and which
        -- later purge in the ledger is its own: `purge_id` is the purge's id. No earlier entry can be found by it. `sealed` (168
        -- bytes) and `ref` (56 bytes) are XChaCha20-Poly1305 under keys that need the room id and the epoch key of `expires`.
        CREATE TABLE token (
            expires INTEGER NOT NULL,
            purge_id BLOB NOT NULL,
            ref BLOB NOT NULL, is_long INTEGER NOT NULL,
            room BLOB NOT NULL,
            slot INTEGER NOT NULL, kind INTEGER NOT NULL, environment INTEGER NOT NULL,
            generation INTEGER NOT NULL, topic TEXT NOT NULL, sealed BLOB NOT NULL,
            PRIMARY KEY (expires, purge_id)
        ) WITHOUT ROWID;

        -- One row a push under way, at most two minutes. Thief: which token's row, which template, which opening in the ledger. With the key file as
        -- well: the token (docs/threat-model.md), until the deadline's epoch key is destroyed. An audience's (slot 0, no room)
        -- has what its template is filled with in `fields`, sealed alike.
        CREATE TABLE job (
            deadline INTEGER NOT NULL,
            job BLOB NOT NULL,
            not_before INTEGER NOT NULL, purge_id BLOB NOT NULL, room BLOB NOT NULL, slot INTEGER NOT NULL,
            kind INTEGER NOT NULL, environment INTEGER NOT NULL, topic TEXT NOT NULL, template TEXT NOT NULL,
            generation INTEGER NOT NULL, expires INTEGER NOT NULL, sealed BLOB NOT NULL,
            fields BLOB, is_last INTEGER NOT NULL DEFAULT 0,
            PRIMARY KEY (deadline, job)
        ) WITHOUT ROWID;

        -- Ledger entries of windows that are not in the log yet, in the log's order (`Entry.Op.rank` and `sortKey`):
        -- published after their window. Entries that are about no token have the number of their recording as key.
        CREATE TABLE entry (
            window_start INTEGER NOT NULL,
            rank INTEGER NOT NULL,
            key BLOB NOT NULL,
            bytes BLOB NOT NULL,
            PRIMARY KEY (window_start, rank, key)
        ) WITHOUT ROWID;

        -- Seals (rank 3) and purges (rank 4) that wait for their batch: published with it. Thief: ids, causes and days of
        -- expiry. No column has order or time, but a page's layout shows some order (docs/threat-model.md).
        CREATE TABLE waiting (
            batch INTEGER NOT NULL,
            rank INTEGER NOT NULL,
            id BLOB NOT NULL,
            until INTEGER NOT NULL, cause INTEGER,
            PRIMARY KEY (batch, rank, id)
        ) WITHOUT ROWID;

        -- Batches: one open for short tokens, one for long ones. `moment` once it is frozen, `window_start` once it is complete.
        CREATE TABLE batch (
            number INTEGER NOT NULL PRIMARY KEY,
            is_long INTEGER NOT NULL, moment INTEGER, window_start INTEGER
        ) WITHOUT ROWID;
        INSERT INTO batch (number, is_long) VALUES (1, 0), (2, 1);

        -- Published totals of the tokens that expire on one day.
        CREATE TABLE bucket (
            until INTEGER NOT NULL PRIMARY KEY,
            sealed INTEGER NOT NULL, carried INTEGER NOT NULL, expired INTEGER NOT NULL, ended INTEGER NOT NULL
        ) WITHOUT ROWID;

        -- The boundary at which batches were looked at last, the window of the latest complete one, and the latest closed bucket.
        CREATE TABLE schedule (
            one INTEGER PRIMARY KEY CHECK (one = 1),
            looked INTEGER, last_batch INTEGER NOT NULL, closed INTEGER
        ) WITHOUT ROWID;

        -- The signed head (one row) and its last entry's rank: public.
        CREATE TABLE log (
            one INTEGER PRIMARY KEY CHECK (one = 1),
            size INTEGER NOT NULL, checkpoint TEXT NOT NULL, window_start INTEGER NOT NULL, rank INTEGER NOT NULL
        ) WITHOUT ROWID;

        -- Entries that the head covers and the folder may lack, many to a row, in the log's order: public.
        CREATE TABLE unpublished (
            first INTEGER NOT NULL PRIMARY KEY,
            count INTEGER NOT NULL, limited INTEGER NOT NULL, bytes BLOB NOT NULL
        ) WITHOUT ROWID;

        -- This node's own marks: the last ratchet step, the highest time seen, the provider token's age.
        CREATE TABLE node (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;

        """

    /// An index of theirs is the row's expiry and 24 bytes of a keyed hash, so that it goes with the rows of its time.
    private static let audiences = """
        -- One row a token of an audience. Thief: topic and environment, when it was registered or renewed (to the step of its
        -- place: a day, an hour), which registrations of that step are for one audience, of one owner, of one session; when an
        -- activity was last updated and whether an update waits; what is asked for (a mask). `audience`, `owner`, `device` and
        -- `session` are keyed by the epoch key of `expires`, and tell nothing across steps. With the key file as well: owners,
        -- audiences and tokens can be tried against them, and token and ref open with the audience's name; `details` and `waiting`
        -- open by themselves. `purge_id` is as in `token`.
        CREATE TABLE registration (
            expires INTEGER NOT NULL,
            purge_id BLOB NOT NULL,
            ref BLOB NOT NULL, is_long INTEGER NOT NULL,
            id BLOB NOT NULL, audience BLOB NOT NULL, owner BLOB NOT NULL, device BLOB NOT NULL, session BLOB,
            kind INTEGER NOT NULL, environment INTEGER NOT NULL, generation INTEGER NOT NULL, topic TEXT NOT NULL,
            sealed BLOB NOT NULL, preferences INTEGER NOT NULL, details BLOB NOT NULL,
            opens INTEGER NOT NULL, stamp INTEGER NOT NULL, waiting BLOB,
            PRIMARY KEY (expires, purge_id)
        ) WITHOUT ROWID;
        CREATE INDEX registration_waiting ON registration (opens) WHERE waiting IS NOT NULL;

        -- What each registration is found by, a row an index, in the order of their expiries: an index of SQLite's own would have
        -- a page to rewrite for each row that is swept. Thief: nothing that `registration` does not tell.
        CREATE TABLE registration_index (
            value BLOB NOT NULL,
            purge_id BLOB NOT NULL,
            PRIMARY KEY (value, purge_id)
        ) WITHOUT ROWID;

        -- One row a session, or a printer's run. Thief: how many, since when (a session's as its back end reports it), how far a
        -- run is (25, 50, 75), how often the active device or that start changed, and which registration is the active one's:
        -- `registration` is the `id` that stands in that table too. With that row's `owner`, which sessions are one user's, across
        -- steps as well. `session` and `client` are keyed; with the key file both can be tried, and the registration opens
        -- with its user's name.
        CREATE TABLE session (
            session BLOB PRIMARY KEY,
            generation INTEGER NOT NULL, started INTEGER NOT NULL, version INTEGER NOT NULL,
            client BLOB, registration BLOB, reached INTEGER NOT NULL DEFAULT 0
        ) WITHOUT ROWID;

        -- One row a question to an audience, ten minutes or so. Thief: when it was asked, how it was answered, whether its back
        -- end has an id of its own for it. With the key file as well: whom it was for (`sealed`), until the epoch key of
        -- `expires` is destroyed; own ids (`user_name`, `creator_name`, keyed) can be tried, an epoch longer.
        CREATE TABLE timer (
            expires INTEGER NOT NULL,
            id BLOB NOT NULL,
            due INTEGER NOT NULL, generation INTEGER NOT NULL, answer INTEGER NOT NULL, sealed BLOB NOT NULL,
            user_name BLOB, creator_name BLOB,
            PRIMARY KEY (expires, id)
        ) WITHOUT ROWID;
        CREATE UNIQUE INDEX timer_by_id ON timer (id);
        CREATE INDEX timer_due ON timer (due) WHERE answer = 0;
        CREATE INDEX timer_by_user_name ON timer (user_name, due) WHERE user_name IS NOT NULL;
        CREATE INDEX timer_by_creator_name ON timer (creator_name, due) WHERE creator_name IS NOT NULL;

        -- One row a thing that is done once. Thief: how many, to the step of their places.
        CREATE TABLE seen (key BLOB PRIMARY KEY) WITHOUT ROWID;
        """
}
