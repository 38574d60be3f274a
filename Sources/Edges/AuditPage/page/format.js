// Formats times, durations and counts for readers.

/** Formats unix seconds as `2026-01-02 03:04:05 UTC`. */
export function time(seconds) {
    if (!Number.isFinite(seconds) || Math.abs(seconds) > 8.64e12) return `second ${seconds}`;
    return new Date(seconds * 1000).toISOString().replace('T', ' ').replace(/\.000Z$/, ' UTC');
}

/** The present time in the same form. */
export const presentTime = () => time(Math.floor(Date.now() / 1000));

export const count = (number) => number.toLocaleString('en').replaceAll(',', '\u202f');

export const counted = (number, one, many = `${one}s`) => `${count(number)} ${number === 1 ? one : many}`;

/** Formats a duration with its two largest units. */
export function span(seconds) {
    const units = [[86_400, 'd'], [3_600, 'h'], [60, 'min'], [1, 's']];
    let rest = Math.abs(Math.round(seconds));
    const parts = [];
    for (const [length, name] of units) {
        if (rest >= length && parts.length < 2) parts.push(`${count(Math.floor(rest / length))} ${name}`);
        else if (parts.length > 0) break;
        rest %= length;
    }
    return (seconds < 0 ? '−' : '') + (parts.join(' ') || '0 s');
}
