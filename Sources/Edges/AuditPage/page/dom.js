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

/** Saves a text as a file. */
export function download(fileName, text) {
    const url = URL.createObjectURL(new Blob([text], { type: 'application/octet-stream' }));
    element('a', { href: url, download: fileName }).click();
    // The browser reads the text from memory, so it has it by then.
    setTimeout(() => URL.revokeObjectURL(url), 60_000);
}

/** A text to take away: a box with the buttons Copy and Download. `note`: what it is worth. */
export function textBox(id, label, text, fileName, rows, note) {
    const area = element('textarea', { id, rows, readonly: true, 'aria-describedby': `${id}-note` });
    area.value = text;
    const copied = element('span', { role: 'status' });
    const copy = async () => {
        area.select();
        try {
            await navigator.clipboard.writeText(text);
            copied.textContent = 'copied';
        } catch {
            copied.textContent = 'selected: copy it from the box';
        }
    };
    return [
        element('label', { for: id }, label), area, element('p', { id: `${id}-note`, class: 'quiet' }, note),
        element('p', { class: 'row' }, element('button', { type: 'button', click: copy }, 'Copy'),
            element('button', { type: 'button', click: () => download(fileName, text) }, 'Download'), copied),
    ];
}

const longestList = 8;

/** A list. A long one scrolls in a box of its own. */
export const bulletList = (items) => element('ul', items.length > longestList ? { class: 'long', tabindex: 0 } : {}, items);

/** A table with a caption; `columns`: `[title, isNumber]`. On a narrow screen each row becomes a card. A long one scrolls in a box of its own. */
export function table(caption, columns, rows) {
    const kind = (isNumber) => isNumber ? 'number' : null;
    // These are the default roles of the elements, which a style with cards would remove.
    const row = (...cells) => element('tr', { role: 'row' }, ...cells);
    const title = ([text, isNumber]) => element('th', { scope: 'col', role: 'columnheader', class: kind(isNumber) }, text);
    const cell = (content, [text, isNumber]) =>
        element('td', { 'role': 'cell', 'class': kind(isNumber), 'data-label': text }, element('span', {}, content));
    const box = rows.length > longestList ? { 'class': 'wide long', 'tabindex': 0, 'role': 'group', 'aria-label': caption } : { class: 'wide' };
    return element('div', box, element('table', { class: 'cards', role: 'table' },
        element('caption', {}, caption),
        element('thead', { role: 'rowgroup' }, row(columns.map(title))),
        element('tbody', { role: 'rowgroup' }, rows.map((cells) => row(cells.map((content, place) => cell(content, columns[place])))))));
}
