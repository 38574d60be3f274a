// What an entry may say (audit/entry.schema.json): the ops with exactly their keys, and the closed lists of values.

export const keyNames = [
    'at', 'cause', 'count', 'epoch', 'generation', 'job', 'kind', 'name', 'next', 'node', 'op', 'policy', 'reason', 'ref',
    'resolution', 'status', 'template', 'until', 'version'];

export const kinds = ['alert', 'voip', 'liveactivity'];
export const purgeCauses = ['expired', 'deleted', 'replaced', 'unregistered', 'policy', 'room_closed'];
export const refusalCauses = [
    'malformed', 'unauthorized', 'forbidden', 'conflict', 'throttled', 'unavailable', 'other', 'not_found', 'too_large'];
export const reasons = [
    // Apple's.
    'BadCollapseId', 'BadDeviceToken', 'BadExpirationDate', 'BadMessageId', 'BadPriority', 'BadTopic', 'DeviceTokenNotForTopic',
    'DuplicateHeaders', 'IdleTimeout', 'InvalidPushType', 'MissingDeviceToken', 'MissingTopic', 'PayloadEmpty', 'TopicDisallowed',
    'BadCertificate', 'BadCertificateEnvironment', 'BadEnvironmentKeyIdInToken', 'BadEnvironmentKeyInToken',
    'ExpiredProviderToken', 'Forbidden', 'InvalidProviderToken', 'MissingProviderToken', 'UnrelatedKeyIdInToken', 'BadPath',
    'MethodNotAllowed', 'ExpiredToken', 'Unregistered', 'PayloadTooLarge', 'TooManyProviderTokenUpdates', 'TooManyRequests',
    'InternalServerError', 'ServiceUnavailable', 'Shutdown',
    // The broker's own.
    'unreachable', 'expired', 'unknown', 'peer_present', 'room_closed', 'other'];

const bits = (names) => names.reduce((sum, name) => sum | 1 << keyNames.indexOf(name), 0);
const op = (name, keys, choices = null) => ({ name, keys: bits(['at', 'op', ...keys]), choices });

export const ops = [
    op('broker.started', ['node', 'policy', 'resolution', 'version']),
    op('broker.stopped', ['node']),
    op('policy.loaded', ['name', 'policy']),
    op('keys.generated', ['generation']),
    op('keys.ratcheted', ['epoch']),
    op('token.sealed', ['kind', 'ref', 'until'], kinds),
    op('token.opened', ['job', 'ref', 'template']),
    op('push.delivered', ['job', 'ref', 'status']),
    op('push.failed', ['job', 'reason', 'ref', 'status'], reasons),
    op('token.purged', ['cause', 'ref'], purgeCauses),
    op('request.refused', ['cause', 'count'], refusalCauses),
    op('ledger.closed', ['next']),
];

/** Numbers of ops, for columns and comparisons: `Op.sealed` is the place of `token.sealed` in `ops`. */
export const Op = Object.freeze({
    started: 0, stopped: 1, policyLoaded: 2, generated: 3, ratcheted: 4, sealed: 5, opened: 6, delivered: 7, failed: 8,
    purged: 9, refused: 10, closed: 11,
});
