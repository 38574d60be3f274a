// Charts as SVG. Each has a table with the same figures for visitors who can't see it.

import { drawn, element, table } from './dom.js';
import { count, span, time } from './format.js';

const chartWidth = 640, stripHeight = 64;

/** Counts over time, one strip per series. `timeline`: the result of Timeline.told(). */
export function timelineChart({ width, from, series }) {
    const buckets = Math.max(1, ...series.map(([, counts]) => counts.length));
    const step = chartWidth / buckets;
    const strips = series.flatMap(([name, counts]) => {
        const most = Math.max(0, ...counts);
        const bars = counts.map((number, bucket) => number === 0 ? null : drawn('rect', {
            class: name, x: (bucket * step).toFixed(2), width: Math.max(1, step * 0.86).toFixed(2),
            y: (stripHeight * (1 - number / most)).toFixed(2), height: (stripHeight * number / most).toFixed(2),
        }));
        return [
            element('p', { class: 'quiet' }, most === 0 ? `${name}: none` : `${name}, at most ${count(most)} in ${span(width)}`),
            drawn('svg', { class: 'strip', viewBox: `0 0 ${chartWidth} ${stripHeight}`, preserveAspectRatio: 'none', 'aria-hidden': 'true' }, bars),
        ];
    });
    const total = (counts) => counts.reduce((sum, number) => sum + number, 0);
    const label = `Tokens over time from ${time(from)} to ${time(from + buckets * width)}: `
        + series.map(([name, counts]) => `${count(total(counts))} ${name}`).join(', ');
    const rows = Array.from({ length: buckets }, (_, bucket) => [time(from + bucket * width), ...series.map(([, counts]) => count(counts[bucket] ?? 0))]);
    return [
        element('h3', {}, 'Tokens sealed, opened and purged'),
        element('div', { role: 'img', 'aria-label': label }, strips),
        element('p', { class: 'quiet' }, `From ${time(from)} to ${time(from + buckets * width)}; each bar is ${span(width)}.`),
        element('details', {}, element('summary', {}, 'As a table'),
            table(`Each row is ${span(width)}`, [['from'], ...series.map(([name]) => [name, true])], rows)),
    ];
}

/** Bars of names with their counts, in the given order. */
export function barTable(title, caption, rows, none) {
    const heading = element('h3', {}, title);
    if (rows.length === 0) return [heading, element('p', { class: 'quiet' }, none)];
    const most = Math.max(...rows.map(([, number]) => number), 1);
    return [heading, table(caption, [['what'], ['how many', true], ['']], rows.map(([name, number]) => [name, count(number), bar(number / most)]))];
}

/** A bar in a cell, beside its number. */
export function bar(part, kind = 'bar') {
    return drawn('svg', { viewBox: '0 0 100 8', preserveAspectRatio: 'none', 'aria-hidden': 'true', height: 8 },
        drawn('rect', { class: kind, width: (100 * Math.min(1, Math.max(0, part))).toFixed(2), height: 8 }));
}
