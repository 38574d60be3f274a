#include <sqlite3.h>
#include <string.h>

// SQLITE_TRANSIENT and SQLITE_STATIC are casts of integers to function pointers, which Swift cannot import.
static inline int mayfly_sqlite3_bind_blob(sqlite3_stmt *statement, int index, const void *bytes, int count) {
    return sqlite3_bind_blob(statement, index, bytes, count, SQLITE_TRANSIENT);
}
static inline int mayfly_sqlite3_bind_text(sqlite3_stmt *statement, int index, const char *bytes, int count) {
    return sqlite3_bind_text(statement, index, bytes, count, SQLITE_TRANSIENT);
}

// Keeps how many frames the write-ahead log has after each commit; SQLite's own checkpoints end with that.
static inline int mayfly_sqlite3_note_frames(void *frames, sqlite3 *database, const char *name, int count) {
    (void)database;
    (void)name;
    *(int *)frames = count;
    return SQLITE_OK;
}
static inline void mayfly_sqlite3_count_frames(sqlite3 *database, int *frames) {
    sqlite3_wal_hook(database, mayfly_sqlite3_note_frames, frames);
}

// sqlite3_config takes variable arguments, which Swift cannot call. To be called before SQLite's first use.
static inline int mayfly_sqlite3_keep_no_memory_statistics(void) {
    return sqlite3_config(SQLITE_CONFIG_MEMSTATUS, 0);
}

// secure_delete overwrites a deleted row where it lies. But when SQLite rebuilds a page, to share rows with its neighbours, older copies of
// them stay in the gap between the page's list of rows and the first row: space that belongs to no row and is never read. So the gap is
// zeroed in each page of a table or index on its way into the database file. (In WAL mode only checkpoints write there; the pages in the
// log are as SQLite made them, since their checksums cover the gap.) The format: https://www.sqlite.org/fileformat2.html, 1.6.

// SQLite's own methods of a database file, and the same with another xWrite.
struct mayfly_methods {
    const sqlite3_io_methods *plain;
    sqlite3_io_methods clearing;
};
static inline struct mayfly_methods *mayfly_methods(void) {
    static struct mayfly_methods methods;
    return &methods;
}

// The bytes of the gap; 0 for none, or a page of another kind.
static inline int mayfly_gap(const unsigned char *page, int size, sqlite3_int64 offset, int *start) {
    const unsigned char *header = page + (offset == 0 ? 100 : 0);
    int interior = header[0] == 2 || header[0] == 5, leaf = header[0] == 10 || header[0] == 13;
    int content = header[5] << 8 | header[6];
    *start = (int)(header - page) + (interior ? 12 : 8) + 2 * (header[3] << 8 | header[4]);
    if (content == 0) content = 65536;
    return (interior || leaf) && *start < content && content <= size ? content - *start : 0;
}

static inline int mayfly_write(sqlite3_file *file, const void *bytes, int count, sqlite3_int64 offset) {
    const sqlite3_io_methods *plain = mayfly_methods()->plain;
    unsigned char copy[65536];
    sqlite3_int64 size = 0;
    int start, gap = 0;
    if (count >= 512 && count <= (int)sizeof copy && (count & (count - 1)) == 0 && offset % count == 0)
        gap = mayfly_gap(bytes, count, offset, &start);
    // Pages of other kinds begin with a page's number: with a zero byte, in a file of less than 2^24 pages. Well below that nothing is taken
    // for what it is not.
    if (gap == 0 || plain->xFileSize(file, &size) != SQLITE_OK || size / count >= 1 << 23)
        return plain->xWrite(file, bytes, count, offset);
    memcpy(copy, bytes, (size_t)count);
    memset(copy + start, 0, (size_t)gap);
    return plain->xWrite(file, copy, count, offset);
}

// To be called for a connection that was just opened. A database in memory has no file, and needs nothing.
static inline int mayfly_sqlite3_clear_gaps(sqlite3 *database) {
    sqlite3_mutex *mutex = sqlite3_mutex_alloc(SQLITE_MUTEX_STATIC_APP1);
    struct mayfly_methods *methods = mayfly_methods();
    sqlite3_file *file = 0;
    int code = sqlite3_file_control(database, "main", SQLITE_FCNTL_FILE_POINTER, &file);
    if (code != SQLITE_OK || !file || !file->pMethods) return code;
    sqlite3_mutex_enter(mutex);
    if (!methods->plain) {
        methods->plain = file->pMethods;
        methods->clearing = *file->pMethods;
        methods->clearing.xWrite = mayfly_write;
    }
    if (file->pMethods == methods->plain) file->pMethods = &methods->clearing;
    // Another kind of file than the first one.
    else if (file->pMethods != &methods->clearing) code = SQLITE_CANTOPEN;
    sqlite3_mutex_leave(mutex);
    return code;
}
