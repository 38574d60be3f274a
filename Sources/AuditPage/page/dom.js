// Makes elements. Text is always inserted as text, so nothing from a log becomes markup.

const SVG = 'http://www.w3.org/2000/svg';

function filled(node, attributes, children) {
    for (const [name, value] of Object.entries(attributes)) {
        if (typeof value === 'function') node.addEventListener(name, value);
        else if (value !== null && value !== false) node.setAttribute(name, value === true ? '' : value);
    }
    node.append(...children.flat().filter((child) => child !== null && child !== undefined));
    return node;
}

/** `attributes`: their names are constants of this program. A function becomes the listener of the event with that name. */
export const element = (name, attributes = {}, ...children) => filled(document.createElement(name), attributes, children);
export const drawn = (name, attributes = {}, ...children) => filled(document.createElementNS(SVG, name), attributes, children);

/** Handles an event of the element with that id. */
export function on(id, event, action) {
    byID(id).addEventListener(event, (happening) => {
        happening.preventDefault();
        action();
    });
}

export const byID = (id) => document.getElementById(id);
export const fill = (id, ...children) => byID(id).replaceChildren(...children.flat().filter(Boolean));

/** A table with a caption; `columns`: `[title, isNumber]`. On a narrow screen each row becomes a card. */
export function table(caption, columns, rows) {
    const kind = (isNumber) => isNumber ? 'number' : null;
    // These are the default roles of the elements, which a style with cards would remove.
    const row = (...cells) => element('tr', { role: 'row' }, ...cells);
    const title = ([text, isNumber]) => element('th', { scope: 'col', role: 'columnheader', class: kind(isNumber) }, text);
    const cell = (content, [text, isNumber]) =>
        element('td', { 'role': 'cell', 'class': kind(isNumber), 'data-label': text }, element('span', {}, content));
    return element('div', { class: 'wide' }, element('table', { class: 'cards', role: 'table' },
        element('caption', {}, caption),
        element('thead', { role: 'rowgroup' }, row(columns.map(title))),
        element('tbody', { role: 'rowgroup' }, rows.map((cells) => row(cells.map((content, place) => cell(content, columns[place])))))));
}
