// Elements that pages are made of. All that comes from the data becomes text, never markup.
'use strict';
const Parts = (() => {
  // Strings among the children become text.
  function make(name, attributes, ...children) {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.append(...children);
    return made;
  }

  const heading = text => make('h2', {}, text);
  const charts = children => make('div', { class: 'charts' }, ...children);

  // Cells: text, a list of children, or {text, className}. A `stacked` table is one of blocks where
  // the page is narrow, in which each cell says its column.
  function table(header, rows, className = '') {
    const textOf = of => Array.isArray(of) ? '' : of.text ?? of;
    const cell = (name, of, column) => Array.isArray(of) ? make(name, {}, ...of)
      : make(name, { class: of.className ?? '', 'data-column': column }, of.text ?? of);
    const lines = [[header, 'th'], ...rows.map(row => [row, 'td'])].map(([cells, name]) =>
      make('tr', {}, ...cells.map((of, i) => cell(name, of, textOf(header[i])))));
    return make('div', { class: 'card scroll' }, make('table', { class: className }, ...lines));
  }

  return { make, heading, charts, table };
})();
