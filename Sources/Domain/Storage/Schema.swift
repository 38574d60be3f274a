/// The database's schema. Comments on each table list what a thief of the database learns without any key.
///
/// Keys of secret rows end with random bytes or a keyed hash, so the order of rows reveals nothing. Most start with the expiry, so a sweep deletes
/// neighbours. Expiries are unix ms, like in the seal. If a room has a round life, its expiry reveals when it was created.
enum Schema {
    static let version: Int64 = 12

    static let statements = shared.joined() + waiting + unpublished + batches

    /// The tables that all engines have, each with its indexes.
    static let shared = [room, code, token, job] + ledger + audiences

    private static let room = """
        -- One row per room with its code and both sides, since a commit writes whole pages. `room` begins with `expires`, like the
        -- room id, so the key finds a room.
        -- The code is pending (`pending` is set) or used (kept for ten minutes at most, to refuse a second use). `creator` and
        -- `retry` are the sealed answers to a create and an accept. They are deleted at `retry_until`, after two minutes at most,
        -- and `creator` also at the creator's first use of its member secret. `due` is the first expiry of a part of the row.
        -- `room` and `member` are one-way hashes of 26 and 32 random bytes, `client` is keyed by epoch key and room id.
        -- `creator_token` and `joiner_token` are purge ids.
        -- Thief: the number of rooms, each room's expiry, whether it was accepted or its code is pending, whether that is short, for
        -- ten minutes the time of the accept. Of each side: the day on which it joined, whether it has a token and has used its
        -- member secret, when it was last knocked at. With the key file also: guesses of codes can be checked against `code`.
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
        CREATE INDEX room_due ON room (due) WHERE due IS NOT NULL;
        CREATE INDEX room_short ON room (short) WHERE short = 1;

        """

    private static let code = """
        -- The room of each join code, until the code ends. No other index of rooms is by a random value.
        -- Thief: nothing beyond `room`.
        CREATE TABLE code (
            code BLOB PRIMARY KEY,
            expires INTEGER NOT NULL,
            room BLOB NOT NULL
        ) WITHOUT ROWID;

        """

    private static let token = """
        -- One row per token. `sealed` (200 bytes, or 648) and `ref` (56 bytes) are XChaCha20-Poly1305 under keys derived from the room id
        -- and the epoch key of `expires`. `purge_id` is the id of the later purge in the ledger.
        -- Thief: which two tokens share a room, their sides and kinds, the day on which each was sealed, and the later purge. Earlier
        -- entries can't be found.
        CREATE TABLE token (
            expires INTEGER NOT NULL,
            purge_id BLOB NOT NULL,
            ref BLOB NOT NULL, is_long INTEGER NOT NULL,
            room BLOB NOT NULL,
            slot INTEGER NOT NULL, kind INTEGER NOT NULL, generation INTEGER NOT NULL, sealed BLOB NOT NULL,
            PRIMARY KEY (expires, purge_id)
        ) WITHOUT ROWID;

        """

    private static let job = """
        -- One row per push in progress, for two minutes at most. A push of an audience has slot 0, no room, and the template's
        -- sealed fields in `fields`.
        -- Thief: the token's row, the template, the push's time and deadline, and the opening in the ledger. With the key file
        -- also: the token (docs/threat-model.md), until the epoch key of the deadline is destroyed.
        CREATE TABLE job (
            deadline INTEGER NOT NULL,
            job BLOB NOT NULL,
            not_before INTEGER NOT NULL, purge_id BLOB NOT NULL, room BLOB NOT NULL, slot INTEGER NOT NULL,
            kind INTEGER NOT NULL, template TEXT NOT NULL, generation INTEGER NOT NULL, expires INTEGER NOT NULL,
            sealed BLOB NOT NULL,
            fields BLOB, is_last INTEGER NOT NULL DEFAULT 0,
            PRIMARY KEY (deadline, job)
        ) WITHOUT ROWID;

        """

    private static let ledger = [
        """
        -- Entries of windows that are not in the log yet, in the log's order (`Entry.Op.rank` and `sortKey`). They are published
        -- after their window. Entries without a `sortKey` have a counter as key.
        CREATE TABLE entry (
            window_start INTEGER NOT NULL,
            rank INTEGER NOT NULL,
            key BLOB NOT NULL,
            bytes BLOB NOT NULL,
            PRIMARY KEY (window_start, rank, key)
        ) WITHOUT ROWID;

        """,
        """
        -- Published totals of the tokens that expire on one day.
        CREATE TABLE bucket (
            until INTEGER NOT NULL PRIMARY KEY,
            sealed INTEGER NOT NULL, carried INTEGER NOT NULL, expired INTEGER NOT NULL, ended INTEGER NOT NULL
        ) WITHOUT ROWID;

        """,
        """
        -- The last processed boundary, the window of the last complete batch, and the last closed bucket.
        CREATE TABLE schedule (
            one INTEGER PRIMARY KEY CHECK (one = 1),
            looked INTEGER, last_batch INTEGER NOT NULL, closed INTEGER
        ) WITHOUT ROWID;

        """,
        """
        -- The signed head (one row) and the rank of its last entry. Public.
        CREATE TABLE log (
            one INTEGER PRIMARY KEY CHECK (one = 1),
            size INTEGER NOT NULL, checkpoint TEXT NOT NULL, window_start INTEGER NOT NULL, rank INTEGER NOT NULL
        ) WITHOUT ROWID;

        """,
        """
        -- Marks of this node: the last ratchet step, the latest known time, the provider token's age. Of the deployment: the size of
        -- sealed addresses if it is not 160.
        CREATE TABLE node (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;

        """,
    ]

    private static let waiting = """
        -- Seals (rank 3) and purges (rank 4) that wait for their batch, in sorted runs of pages (`WaitingRuns`). `place` has batch, rank, run
        -- and page, `bytes` has `count` entries. In a table without rowid, SQLite would cut such a row into pieces.
        -- Thief: ids, causes and days of expiry. Of an entry's age: whether it is in the newest run, or in which slice. Of a batch's first
        -- commit, until the second: which entries belong together.
        CREATE TABLE waiting (
            place INTEGER PRIMARY KEY,
            count INTEGER NOT NULL, pages INTEGER NOT NULL, checksum INTEGER NOT NULL, bytes BLOB NOT NULL
        );

        """

    private static let unpublished = """
        -- Entries under the head that the folder may lack, in the log's order. Public. A row with `window_start` has no entries itself: it names
        -- the `count` entries after `rank` and `id` in the runs of `numbers`. Its `bytes` are the keys of the pages that end there.
        CREATE TABLE unpublished (
            first INTEGER NOT NULL PRIMARY KEY,
            count INTEGER NOT NULL, limited INTEGER NOT NULL, bytes BLOB NOT NULL,
            window_start INTEGER, numbers BLOB, rank INTEGER, id BLOB
        ) WITHOUT ROWID;

        """

    private static let batches = """
        -- Batches. One is open for short tokens and one for long tokens. A frozen batch has `moment`, a complete one `window_start`. `rank`
        -- and `id` are those of its last seal or purge in the log. `ranks` has 1 if seals were added, and 2 if purges were.
        CREATE TABLE batch (
            number INTEGER NOT NULL PRIMARY KEY,
            is_long INTEGER NOT NULL, moment INTEGER, window_start INTEGER, rank INTEGER, id BLOB, ranks INTEGER NOT NULL DEFAULT 0
        ) WITHOUT ROWID;
        INSERT INTO batch (number, is_long) VALUES (1, 0), (2, 1);

        """

    /// Indexes here are the row's expiry and 24 bytes of a keyed hash, so they are swept with their rows.
    private static let audiences = [
        """
        -- One row per token of an audience. `audience`, `owner`, `device` and `session` are keyed by the epoch key of `expires`.
        -- `purge_id` is as in `token`.
        -- Thief: when it was registered or renewed, rounded to a day or an hour; which registrations of the
        -- same day or hour share an audience, owner or session; when an activity was last updated and whether an update waits; the
        -- mask of wanted pushes. With the key file also: guesses of owners, audiences and tokens can be checked, token and ref
        -- can be opened with the audience's name, `details` and `waiting` without it.
        CREATE TABLE registration (
            expires INTEGER NOT NULL,
            purge_id BLOB NOT NULL,
            ref BLOB NOT NULL, is_long INTEGER NOT NULL,
            id BLOB NOT NULL, audience BLOB NOT NULL, owner BLOB NOT NULL, device BLOB NOT NULL, session BLOB,
            kind INTEGER NOT NULL, generation INTEGER NOT NULL, sealed BLOB NOT NULL, preferences INTEGER NOT NULL, details BLOB NOT NULL,
            opens INTEGER NOT NULL, stamp INTEGER NOT NULL, waiting BLOB,
            PRIMARY KEY (expires, purge_id)
        ) WITHOUT ROWID;
        CREATE INDEX registration_waiting ON registration (opens) WHERE waiting IS NOT NULL;

        """,
        """
        -- The indexes of registrations, ordered by expiry. With an index of SQLite's own, a sweep would rewrite a page per row.
        -- Approvals are listed here, too, with their id as `purge_id`: by their user's session until they end, and by their back
        -- end's session.
        -- Thief: beyond `registration`, which approvals of the same five minutes belong to one session.
        CREATE TABLE registration_index (
            value BLOB NOT NULL,
            purge_id BLOB NOT NULL,
            PRIMARY KEY (value, purge_id)
        ) WITHOUT ROWID;

        """,
        """
        -- One row per session or printer's run. `session` and `client` are keyed. `registration` is the `id` of the active device's
        -- registration.
        -- Thief: their number, start (of a session as its back end reports it), a run's progress (25, 50, 75), the state that was
        -- reported while approvals waited, how often the active device or start changed, the active device's registration, and through its
        -- `owner` which sessions belong to one user.
        -- With the key file also: guesses of `session` and `client` can be checked, and the registration can be opened with its
        -- user's name.
        CREATE TABLE session (
            session BLOB PRIMARY KEY,
            generation INTEGER NOT NULL, started INTEGER NOT NULL, version INTEGER NOT NULL,
            client BLOB, registration BLOB, reached INTEGER NOT NULL DEFAULT 0
        ) WITHOUT ROWID;

        """,
        """
        -- One row per request to an audience, for about ten minutes. `user_name` and `creator_name` are keyed.
        -- Thief: when it was made, its answer, whether its back end has an own id for it. With the key file also: its user
        -- (`sealed`) until the epoch key of `expires` is destroyed, and checks of guessed own ids for one more epoch.
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

        """,
        """
        -- One row per mark against repeats. Thief: their number, by rounded expiry.
        CREATE TABLE seen (key BLOB PRIMARY KEY) WITHOUT ROWID;

        """,
    ]
}
