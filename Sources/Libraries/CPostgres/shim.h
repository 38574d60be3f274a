#include <dlfcn.h>
// Debian's folder. Without pkg-config, which would also link the library.
#if __has_include(<postgresql/libpq-fe.h>)
#include <postgresql/libpq-fe.h>
#else
#include <libpq-fe.h>
#endif
#include <stddef.h>

// libpq is loaded when a PostgreSQL database is first used: linking it, with Kerberos and LDAP behind it, would cost every start 5 ms and
// every process the memory of twenty libraries.
#define MAYFLY_PQ_FUNCTIONS(X)                                                                                                               \
    X(PQconnectStartParams) X(PQconnectPoll) X(PQstatus) X(PQerrorMessage) X(PQfinish) X(PQsocket) X(PQserverVersion)                         \
    X(PQsetnonblocking) X(PQenterPipelineMode) X(PQsetNoticeReceiver) X(PQconninfoParse) X(PQconninfoFree) X(PQfreemem)                      \
    X(PQsendPrepare) X(PQsendQueryParams) X(PQsendQueryPrepared) X(PQpipelineSync) X(PQflush) X(PQconsumeInput) X(PQisBusy) X(PQgetResult)   \
    X(PQresultStatus) X(PQresultErrorField) X(PQntuples) X(PQnfields) X(PQgetvalue) X(PQgetlength) X(PQgetisnull) X(PQftype) X(PQcmdTuples)   \
    X(PQclear) X(PQnotifies)

struct mayfly_pq {
#define MAYFLY_PQ_FIELD(name) __typeof__(&name) name;
    MAYFLY_PQ_FUNCTIONS(MAYFLY_PQ_FIELD)
#undef MAYFLY_PQ_FIELD
};

// Returns the name of what is missing, or null once all functions are loaded.
static inline const char *mayfly_pq_load(struct mayfly_pq *pq) {
    void *library = dlopen("libpq.so.5", RTLD_NOW | RTLD_LOCAL);
    if (!library) return "libpq.so.5";
#define MAYFLY_PQ_LOAD(name)                                                                                                                 \
    pq->name = (__typeof__(&name))dlsym(library, #name);                                                                                     \
    if (!pq->name) return #name;
    MAYFLY_PQ_FUNCTIONS(MAYFLY_PQ_LOAD)
#undef MAYFLY_PQ_LOAD
    return NULL;
}

// Notices may quote values, and libpq would print them on standard error.
static inline void mayfly_pq_drop_notice(void *unused, const PGresult *result) {
    (void)unused;
    (void)result;
}
