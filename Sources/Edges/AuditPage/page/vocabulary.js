// The schema of entries (audit/entry.schema.json): ops with their keys, and enumerations.

export const keyNames = [
    'at', 'binary', 'cause', 'count', 'ended', 'epoch', 'expired', 'generation', 'id', 'job', 'jobs', 'live', 'name', 'next', 'node',
    'op', 'policy', 'previous', 'reason', 'resolution', 'root', 'sealed', 'size', 'status', 'swept', 'template', 'until', 'version'];

export const purgeCauses = ['expired', 'ended', 'policy'];
export const refusalCauses = [
    'malformed', 'unauthorized', 'forbidden', 'conflict', 'throttled', 'unavailable', 'other', 'not_found', 'too_large'];
export const reasons = [
    // Apple's reasons. Those of other services are recorded as the one that fits.
    'BadCollapseId', 'BadDeviceToken', 'BadExpirationDate', 'BadMessageId', 'BadPriority', 'BadTopic', 'DeviceTokenNotForTopic',
    'DuplicateHeaders', 'IdleTimeout', 'InvalidPushType', 'MissingDeviceToken', 'MissingTopic', 'PayloadEmpty', 'TopicDisallowed',
    'BadCertificate', 'BadCertificateEnvironment', 'BadEnvironmentKeyIdInToken', 'BadEnvironmentKeyInToken',
    'ExpiredProviderToken', 'Forbidden', 'InvalidProviderToken', 'MissingProviderToken', 'UnrelatedKeyIdInToken', 'BadPath',
    'MethodNotAllowed', 'ExpiredToken', 'Unregistered', 'PayloadTooLarge', 'TooManyProviderTokenUpdates', 'TooManyRequests',
    'InternalServerError', 'ServiceUnavailable', 'Shutdown',
    // Reasons of the broker.
    'unreachable', 'unknown', 'unsent', 'other'];

/** Says how a push ended, or that it never left. `reason`: null if the push service accepted it. `status`: its HTTP status, 0 without an answer. */
export function outcomeWords(reason, status) {
    const answer = status > 0 ? ` (${status})` : '';
    switch (reason) {
        case null: return `the push service accepted it${answer}`;
        case 'unsent': return status > 0 ? `the push service was busy${answer}, and it was not retried`
            : 'never sent: too late, no longer needed, or its address was destroyed';
        case 'unreachable': return 'never sent: the push service could not be reached';
        case 'unknown': return `sent without an answer${answer}: the push service may have delivered it`;
        case 'other': return status > 0 ? `the push service refused it for an unlisted reason${answer}` : 'never sent: a newer push replaced it, or it was invalid';
        default: return status > 0 ? `the push service refused it: ${reason}${answer}` : `never sent: ${reason}`;
    }
}

const bits = (names) => names.reduce((sum, name) => sum | 1 << keyNames.indexOf(name), 0);
const op = (name, rank, keys, choices = null) => ({ name, rank, keys: bits(['at', 'op', ...keys]), choices });

/** By `Op`. `rank`: the order of ops within a window. An `expired` purge also has `until`. */
export const ops = [
    op('broker.started', 0, ['binary', 'node', 'policy', 'resolution', 'version']),
    op('broker.stopped', 0, ['node']),
    op('policy.loaded', 0, ['name', 'policy']),
    op('keys.generated', 0, ['generation']),
    op('keys.ratcheted', 0, ['epoch', 'swept']),
    op('request.refused', 0, ['cause', 'count'], refusalCauses),
    op('ledger.opened', 0, ['jobs', 'previous', 'root', 'size']),
    op('bucket.carried', 0, ['live', 'until']),
    op('token.opened', 1, ['id', 'job', 'template']),
    op('push.delivered', 2, ['job', 'status']),
    op('push.failed', 2, ['job', 'reason', 'status'], reasons),
    op('token.sealed', 3, ['id', 'until']),
    op('token.purged', 4, ['cause', 'id'], purgeCauses),
    op('bucket.closed', 5, ['ended', 'expired', 'sealed', 'until']),
    op('ledger.closed', 6, ['next']),
];
export const untilKey = bits(['until']);

/** Numbers of ops, for columns and comparisons: `Op.sealed` is the index of `token.sealed` in `ops`. */
export const Op = Object.freeze({
    started: 0, stopped: 1, policyLoaded: 2, generated: 3, ratcheted: 4, refused: 5, ledgerOpened: 6, carried: 7, opened: 8,
    delivered: 9, failed: 10, sealed: 11, purged: 12, bucketClosed: 13, ledgerClosed: 14,
});
