// Elements made from values. Text goes in as text only: nothing from a log is ever read as markup.

const SVG = 'http://www.w3.org/2000/svg';

function filled(node, attributes, children) {
    for (const [name, value] of Object.entries(attributes)) {
        if (typeof value === 'function') node.addEventListener(name, value);
        else if (value !== null && value !== false) node.setAttribute(name, value === true ? '' : value);
    }
    node.append(...children.flat().filter((child) => child !== null && child !== undefined));
    return node;
}

/** `attributes`: names are this program's own; a function listens to the event of that name. */
export const element = (name, attributes = {}, ...children) => filled(document.createElement(name), attributes, children);
export const drawn = (name, attributes = {}, ...children) => filled(document.createElementNS(SVG, name), attributes, children);

export const byID = (id) => document.getElementById(id);
export const fill = (id, ...children) => byID(id).replaceChildren(...children.flat().filter(Boolean));

/** A table with a caption; `columns`: `[title, isNumber]`. On a narrow screen each row becomes a card. */
export function table(caption, columns, rows) {
    const kind = (isNumber) => isNumber ? 'number' : null;
    return element('div', { class: 'wide' }, element('table', { class: 'cards' },
        element('caption', {}, caption),
        element('thead', {}, element('tr', {}, columns.map(([title, isNumber]) => element('th', { scope: 'col', class: kind(isNumber) }, title)))),
        element('tbody', {}, rows.map((row) => element('tr', {}, row.map((cell, place) =>
            element('td', { 'class': kind(columns[place][1]), 'data-label': columns[place][0] }, element('span', {}, cell))))))));
}
