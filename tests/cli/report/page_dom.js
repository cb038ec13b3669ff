// Runs the script of a page outside a browser, and prints what it builds: `node page_dom.js PAGE`.
// A line for each element, indented as they nest, with its own text; then what each chart is drawn
// with, once the last box of the legends is unchecked. Elements have what the script uses of a
// browser's, and refuse markup; charts are kept, not drawn.
'use strict';
const fs = require('fs'), vm = require('vm');
const html = fs.readFileSync(process.argv[2], 'utf8');
const scripts = [...html.matchAll(/<script[^>]*>([^]*?)<\/script/g)].map(match => match[1]);

class Element {
  constructor(name) {
    Object.assign(this, { name, attributes: {}, children: [], style: {}, listeners: {} });
    this.clientWidth = 500;
    this.classList = { toggle: (name, isOn) => { if (isOn) this.attributes.class = name; } };
  }
  setAttribute(name, value) {
    this.attributes[name] = String(value);
    if (name === 'checked') this.checked = true;
  }
  append(...parts) {
    this.children.push(...parts.map(part => part instanceof Element ? part : String(part)));
  }
  replaceChildren(...parts) {
    this.children = [];
    this.append(...parts);
  }
  addEventListener(type, listener) { this.listeners[type] = listener; }
  get text() { return this.children.filter(child => typeof child === 'string').join(''); }
  get textContent() { return this.children.map(child => child.textContent ?? child).join(''); }
  get innerHTML() { return this.textContent.replace(/[&<>]/g, ch => `&#${ch.charCodeAt(0)};`); }
  set innerHTML(markup) { throw new Error('markup: ' + markup); }
  *all() {
    yield this;
    for (const child of this.children) if (child instanceof Element) yield* child.all();
  }
}

const graphs = [];
class Dygraph {
  static numericTicks(low, high) {
    return [0, 1, 2, 3, 4].map(i => ({ v: low + i * (high - low) / 4 }));
  }
  constructor(plot, rows, options) {
    Object.assign(this, { plot, rows, options, hidden: [] });
    graphs.push(this);
  }
  setVisibility(curve, isVisible) { if (!isVisible) this.hidden.push(curve); }
  updateOptions(options) { Object.assign(this.options, options); }
  destroy() { graphs.splice(graphs.indexOf(this), 1); }
  isZoomed() { return false; }
  toDomYCoord(y) { return y; }
  xAxisRange() { return [this.rows[0][0], this.rows.at(-1)[0]]; }
  toDomXCoord(x) { return x; }
}

const body = new Element('body'), main = new Element('main'), data = { textContent: scripts[0] };
vm.runInNewContext(scripts.at(-1), {
  Dygraph,
  document: { body, createElement: name => new Element(name), getElementById: () => data,
    querySelector: () => main },
  getComputedStyle: () => ({ getPropertyValue: name => ' ' + name }),
  matchMedia: () => ({ addEventListener() {} }),
});

const print = (...words) => console.log(words.filter(word => word !== '').join(' '));
function show(element, depth) {
  const { class: name = '', title = '', src = '' } = element.attributes;
  print('  '.repeat(depth) + element.name + (name && '.' + name), element.text, title, src);
  for (const child of element.children) if (child instanceof Element) show(child, depth + 1);
}
show(main, 0);

const boxes = [...main.all()].filter(({ attributes }) => attributes.type === 'checkbox');
if (boxes.length > 1) {
  boxes.at(-1).checked = false;
  boxes.at(-1).listeners.change();
}
graphs.forEach(({ plot, rows, options, hidden }, i) => {
  const [low, high] = [Math.min, Math.max].map(of => of(...rows.flatMap(row => row.slice(1))
    .filter(point => point !== null && point[1] === point[1]).map(point => point[1])));
  const option = name => name === 'logscale' ? options.logscale : undefined;
  const ticks = options.axes.y.ticker(low, high, 300, option).map(tick => tick.label).join(' ');
  const { logscale = false, includeZero = false, drawPoints = false } = options;
  print(`chart ${i}`, plot.attributes['aria-label'], JSON.stringify(
    { log: logscale, zero: includeZero, dots: drawPoints, hidden, ticks }));
  print('  x', options.axes.x.ticker(0, rows.length - 1, 300, () => false)
    .map(tick => tick.label).join(' '));
  print('  rows', JSON.stringify(rows.slice(0, 2)));
  options.highlightCallback(null, rows[0][0]);
  print('  tip', [...plot.children.at(-1).all()].map(part => part.text).filter(Boolean).join('|'));
});
