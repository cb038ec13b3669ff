// Charts and their legends, drawn by dygraphs: hover, zoom, curves that can be hidden, and files of
// what a chart shows. All that comes from the data becomes text, never markup.
'use strict';
const Charts = (() => {
  const { make } = Parts;
  const dashes = [[], [7, 4], [2, 3], [9, 3, 2, 3]];
  const nColors = 10;
  const columnWidth = 3.2; // pixels of a drawn point; more points hide each other
  const zooms = new Map(); // by title: [from, to], where a reader has zoomed
  let groups = []; // of curves that one legend shows and hides
  let undrawn = []; // dygraphs draws into what has a size: once the figures are in the page

  // Numbers as text

  // [size, name]: what numbers as large as this are counted in.
  function unitOf(largest, isBytes) {
    const units = isBytes
      ? [[2 ** 40, ' TiB'], [2 ** 30, ' GiB'], [2 ** 20, ' MiB'], [2 ** 10, ' KiB'], [1, ' bytes']]
      : [[1e12, ''], [1e9, 'G'], [1e6, 'M'], [1e3, 'k'], [1, '']];
    const [size, name] =
      units.find(([size, name]) => largest >= (name === 'k' ? 1e4 : size)) ?? units.at(-1);
    return name === '' ? [1, ''] : [size, name];
  }

  // As many digits as tell values apart that differ by `step`.
  function tickText(value, step, [size, name]) {
    if (value === 0) return '0';
    const digits = -Math.floor(Math.log10(step / size) + 1e-9);
    if (digits <= 5 && Math.abs(value / size) < 1e12)
      return (value / size).toFixed(Math.max(0, digits)) + name;
    const afterFirst = Math.floor(Math.log10(Math.abs(value) / step) + 1e-9);
    return value.toExponential(Math.min(Math.max(afterFirst, 0), 15));
  }

  function valueText(value, isBytes) {
    if (isBytes) {
      const [size, name] = unitOf(value, true);
      return Number((value / size).toPrecision(4)) + name;
    }
    const size = Math.abs(value);
    if (size !== 0 && (size < 1e-3 || size >= 1e9))
      return Number(value.toPrecision(4)).toExponential();
    return Number(value.toPrecision(5)).toLocaleString('en', { maximumFractionDigits: 7 });
  }

  // 1, 2 and 5 times powers of ten, or, of many, powers of ten alone.
  function isLogTick(value, nDecades) {
    const decade = Math.floor(Math.log10(value) + 1e-9);
    const digit = Math.round(value / 10 ** decade);
    if (nDecades > 3) return digit === 1 && decade % Math.ceil(nDecades / 8) === 0;
    return [1, 2, 5].includes(digit);
  }

  function logText(value) {
    const text = Number(value.toPrecision(3));
    return 1e-4 < value && value < 1e6 ? String(text) : text.toExponential();
  }

  // dygraphs takes labels as markup.
  const markupOf = text => make('span', {}, text).innerHTML;

  // Of a long name its beginning and its end; of a tensor not what all tensors are called.
  function shortName(name) {
    const text = name.replace(/^model\./, '').replace(/\.weight$/, '');
    return text.length > 18 ? text.slice(0, 9) + '\u2026' + text.slice(-8) : text;
  }

  // As many names as there is room for.
  function nameTicks(names, low, high, pixels) {
    const first = Math.max(0, Math.ceil(low)), last = Math.min(names.length - 1, Math.floor(high));
    const stride = Math.max(1, Math.ceil((last - first + 1) * 20 / pixels)), ticks = [];
    for (let v = first; v <= last; v += stride)
      ticks.push({ v, label: markupOf(shortName(names[v])) });
    return ticks;
  }

  // dygraphs' ticks with our labels; of steps whole numbers alone, of names theirs.
  function ticker({ isBytes = false, isStep = false, names = null }) {
    return (low, high, pixels, options, graph, values) => {
      if (names !== null) return nameTicks(names, low, high, pixels);
      let ticks = Dygraph.numericTicks(low, high, pixels, options, graph, values);
      if (isStep) ticks = ticks.filter(tick => Number.isInteger(tick.v));
      const isLog = options('logscale');
      if (isLog) {
        const kept = ticks.filter(tick => isLogTick(tick.v, Math.log10(high / low)));
        if (kept.length > 1) ticks = kept;
      }
      const unit = unitOf(Math.max(Math.abs(low), Math.abs(high)), isBytes);
      const step = ticks.length > 1 ? ticks[1].v - ticks[0].v : (high - low) || 1;
      for (const tick of ticks)
        tick.label = isLog ? logText(tick.v) : tickText(tick.v, step, unit);
      return ticks;
    };
  }

  // Curves with one legend: their names, and styles [{color, dash}], each a number; `titles` say
  // more of them. `isVisible` may be of an earlier group, whose curves these go on with.
  function groupOf(names, styles, { titles = names, isVisible = names.map(() => true) } = {}) {
    const group = { names, titles, isVisible, graphs: [] };
    group.color = curve => `--run-${styles[curve].color % nColors}`;
    group.dash = curve => dashes[styles[curve].dash % dashes.length];
    group.options = () => ({
      colors: names.map((_, curve) => theme(group.color(curve))),
      axisLineColor: theme('--axis'), gridLineColor: theme('--grid'),
    });
    groups.push(group);
    return group;
  }

  // As many styles as curves: colours first, then dashes; or both at once.
  const stylesOf = (n, eachDashed) => Array.from({ length: n }, (_, i) =>
    ({ color: i, dash: (eachDashed ? i : 0) + Math.floor(i / nColors) }));

  const theme = name => getComputedStyle(document.body).getPropertyValue(name).trim();

  // A piece of the line as it is drawn.
  function key(group, curve) {
    const made = make('span', { class: 'key' });
    let at = 0;
    const stops = group.dash(curve).map((length, i) =>
      `${i % 2 ? 'transparent' : `var(${group.color(curve)})`} ${at}px ${at += length}px`);
    made.style.background = stops.length === 0 ? `var(${group.color(curve)})`
      : `repeating-linear-gradient(90deg, ${stops.join(', ')})`;
    return made;
  }

  const named = (group, curve) => [key(group, curve), group.names[curve]];

  function legend(group) {
    return make('ul', { class: 'legend' }, ...group.names.map((name, curve) => {
      const box = make('input', { type: 'checkbox', ...group.isVisible[curve] && { checked: '' } });
      box.addEventListener('change', () => {
        group.isVisible[curve] = box.checked;
        for (const graph of group.graphs) graph.setVisibility(curve, box.checked);
      });
      return make('li', {}, make('label', { title: group.titles[curve] }, box,
        ...named(group, curve)));
    }));
  }

  // Charts: {title, x, xNames, log, zero, zeroLine, bytes, dots, isError, nothing,
  // curves: [{x, y, low, high, gaps}]}; with isError low and high are errors, else
  // the least and the largest value; `nothing` is said
  // where no curve has a value.

  // Each point the mean of `size` points of the curve, and their least and largest value, or the
  // mean of the errors; y is null where none is finite.
  function grouped(curve, size, isError) {
    const points = [];
    for (let begin = 0; begin < curve.x.length; begin += size) {
      const end = Math.min(begin + size, curve.x.length);
      const point = { x: 0, y: 0, low: Infinity, high: -Infinity };
      let n = 0;
      for (let i = begin; i < end; ++i) {
        if (curve.y[i] === null) continue;
        ++n;
        point.x += (curve.x[i] - point.x) / n;
        point.y += (curve.y[i] - point.y) / n;
        const low = (curve.low ?? curve.y)[i], high = (curve.high ?? curve.y)[i];
        const before = n > 1 ? point : { low, high };
        point.low = isError ? before.low + (low - before.low) / n : Math.min(point.low, low);
        point.high = isError ? before.high + (high - before.high) / n : Math.max(point.high, high);
      }
      points.push(n > 0 ? point : { x: curve.x[begin], y: null });
    }
    return points;
  }

  // As coarse as the part between these ends may be.
  function pointsOf(chart, [from, to], width) {
    return chart.curves.map(curve => {
      const n = curve.x.filter(x => from <= x && x <= to).length;
      const size = Math.max(1, Math.ceil(n / Math.max(100, width / columnWidth)));
      return grouped(curve, size, chart.isError);
    });
  }

  // A logarithmic scale shows no zero: bands that reach down to it end at the least that is shown.
  function onLogScale(curves) {
    let least = Infinity;
    for (const { y, low = y } of curves)
      y.forEach((y, i) => { if (y > 0) least = Math.min(least, low[i] > 0 ? low[i] : y); });
    return curves.map(curve => ({ ...curve, y: curve.y.map(y => y > 0 ? y : null),
      low: curve.low?.map(low => Math.max(low, least)) }));
  }

  // dygraphs' rows: x, and [low, mean, high] of each curve; null: no point there, NaN: a gap.
  function rowsOf(points, [first, last]) {
    const rows = new Map();
    const rowAt = x => {
      if (!rows.has(x)) rows.set(x, [x, ...points.map(() => null)]);
      return rows.get(x);
    };
    if (first === last) { // a range of one x has no width
      rowAt(first - 1);
      rowAt(last + 1);
    }
    points.forEach((curve, i) => {
      for (const { x, y, low, high } of curve)
        rowAt(x)[i + 1] = y === null ? [NaN, NaN, NaN] : [low, y, high];
    });
    return [...rows.values()].sort((a, b) => a[0] - b[0]);
  }

  const hasDots = (chart, points) => chart.dots && points.every(curve => curve.length <= 60);
  // Names have no order that a line would follow.
  const strokeWidth = (chart, points) => chart.xNames && hasDots(chart, points) ? 0 : 1.7;
  const xText = (chart, x) => {
    if (chart.xNames) return chart.xNames[x];
    if (chart.x === 'step') return 'step ' + Math.round(x).toLocaleString('en');
    const text = Math.abs(x) < 1e6 ? String(Number(x.toPrecision(6))) : valueText(x, false);
    return ['tokens', 'pictures', 'seconds'].includes(chart.x) ? `${text} ${chart.x}` : text;
  };

  // What the curves have at the x under the cursor, or near it.
  function fillTip(tip, group, chart, points, x, window) {
    const nothing = chart.log ? 'zero or not finite' : 'not finite';
    const rows = [make('b', {}, xText(chart, x))];
    points.forEach((curve, i) => {
      if (!group.isVisible[i] || curve.length === 0) return;
      const near = curve.reduce((a, b) => Math.abs(b.x - x) < Math.abs(a.x - x) ? b : a);
      if (Math.abs(near.x - x) > 0.03 * (window[1] - window[0])) return;
      const row = make('div', {}, key(group, i), make('span', { class: 'of' }, group.names[i]),
        make('span', { class: 'value' },
          near.y === null ? nothing : valueText(near.y, chart.bytes)));
      const range = text => row.append(make('span', { class: 'range' }, text));
      if (chart.isError && near.low < near.high)
        range('\u00b1 ' + valueText((near.high - near.low) / 2, chart.bytes));
      else if (near.low < near.high)
        range(valueText(near.low, chart.bytes) + ' \u2013 ' + valueText(near.high, chart.bytes));
      if (Math.abs(near.x - x) > 0.005 * (window[1] - window[0]))
        range('at ' + xText(chart, near.x));
      rows.push(row);
    });
    tip.replaceChildren(...rows);
  }

  // A mark at the top for values that are not finite, and the line of zero.
  function drawMarks(context, area, graph, group, chart) {
    if (chart.zeroLine) {
      context.fillStyle = theme('--soft');
      context.fillRect(area.x, Math.round(graph.toDomYCoord(0)), area.w, 1);
    }
    chart.curves.forEach(({ gaps = [] }, i) => {
      if (!group.isVisible[i]) return;
      context.fillStyle = theme(group.color(i));
      let last = -Infinity;
      for (const gap of gaps) {
        const x = graph.toDomXCoord(gap);
        if (x - last < columnWidth || x < area.x || x > area.x + area.w) continue;
        last = x;
        context.beginPath();
        context.moveTo(x, area.y + 6);
        context.lineTo(x - 3, area.y);
        context.lineTo(x + 3, area.y);
        context.fill();
      }
    });
  }

  function draw(group, chart, plot) {
    const xs = chart.curves.filter(({ x }) => x.length > 0).flatMap(({ x }) => [x[0], x.at(-1)]);
    const ends = [Math.min(...xs), Math.max(...xs)];
    let points = pointsOf(chart, ends, plot.clientWidth);
    const tip = make('div', { class: 'tip' });
    const showWithin = (window, more = {}) => {
      points = pointsOf(chart, window, plot.clientWidth);
      graph.updateOptions({ file: rowsOf(points, ends), drawPoints: hasDots(chart, points),
        strokeWidth: strokeWidth(chart, points), ...more });
    };
    const graph = new Dygraph(plot, rowsOf(points, ends), {
      labels: ['x', ...group.names.map((_, i) => String(i))],
      series: Object.fromEntries(group.names.map((_, i) =>
        [String(i), { strokePattern: group.dash(i).length > 0 ? group.dash(i) : null }])),
      customBars: true, connectSeparatedPoints: true, fillAlpha: 0.16,
      strokeWidth: strokeWidth(chart, points), visibility: [...group.isVisible],
      drawPoints: hasDots(chart, points), pointSize: 2.6, highlightCircleSize: 3.5,
      logscale: chart.log, includeZero: chart.zero, legend: 'never', ...group.options(),
      axisLabelFontSize: 11, gridLineWidth: 1,
      xRangePad: 6, yRangePad: chart.log ? 8 : null, rightGap: 12,
      axes: {
        x: { drawGrid: Boolean(chart.xNames),
             ticker: ticker({ isStep: chart.x === 'step', names: chart.xNames }),
             pixelsPerLabel: chart.xNames ? 22 : 55, ...chart.xNames && { axisLabelWidth: 20 } },
        y: { ticker: ticker({ isBytes: chart.bytes }), axisLabelWidth: 58, pixelsPerLabel: 26,
             labelsKMG2: chart.bytes },
      },
      ...chart.xNames && { xAxisHeight: 80 },
      underlayCallback: (context, area, g) => drawMarks(context, area, g, group, chart),
      highlightCallback: (event, x) => {
        fillTip(tip, group, chart, points, x, graph.xAxisRange());
        tip.style.display = 'block';
        const at = graph.toDomXCoord(x), isRight = at > plot.clientWidth / 2;
        tip.style.left = isRight ? '' : at + 14 + 'px';
        tip.style.right = isRight ? plot.clientWidth - at + 14 + 'px' : '';
      },
      unhighlightCallback: () => { tip.style.display = 'none'; },
      zoomCallback: (from, to) => {
        if (graph.isZoomed('x')) zooms.set(chart.title, [from, to]);
        else zooms.delete(chart.title);
        showWithin([from, to]);
      },
    });
    plot.append(tip);
    group.graphs.push(graph);
    chart.graph = graph;
    const zoom = zooms.get(chart.title);
    if (zoom !== undefined) showWithin(zoom, { dateWindow: zoom });
  }

  // Files of a chart

  function save(name, href) {
    const link = make('a', { download: name, href });
    link.click();
  }

  const fileName = (chart, ending) =>
    chart.title.toLowerCase().replace(/[^a-z0-9]+/g, '_').replace(/^_|_$/g, '') + ending;

  // A line a point of a curve, as the page has it; of means the least and largest value too.
  function csvOf(group, chart) {
    const cell = value => /[",\n\r]/.test(value) ? `"${value.replaceAll('"', '""')}"` : value;
    const lines = [['name', chart.x, 'value', 'low', 'high'].map(cell).join(',')];
    chart.curves.forEach(({ x, y, low = [], high = [] }, i) => {
      x.forEach((at, k) => lines.push([cell(group.names[i]), cell(String(chart.xNames?.[at] ?? at)),
        y[k] ?? '', low[k] ?? '', high[k] ?? ''].join(',')));
    });
    return lines.join('\n') + '\n';
  }

  // The chart as it is shown, with its title, its x and the names of its curves.
  function pngOf(group, chart, plot, unit) {
    const shown = group.names.map((_, i) => i).filter(i => group.isVisible[i]);
    const width = plot.clientWidth, height = plot.clientHeight, top = 52, row = 20, scale = 2;
    const canvas = make('canvas', { width: (width + 32) * scale,
      height: (top + height + 32 + row * shown.length) * scale });
    const context = canvas.getContext('2d');
    context.scale(scale, scale);
    context.fillStyle = theme('--card');
    context.fillRect(0, 0, canvas.width, canvas.height);
    context.translate(16, 0);
    const write = (text, x, y, color, size, weight = 400) => {
      context.font = `${weight} ${size}px system-ui, sans-serif`;
      context.fillStyle = theme(color);
      context.fillText(text, x, y);
    };
    write(chart.title, 0, 24, '--text', 15, 600);
    write(unit, 0, 42, '--soft', 12);
    context.drawImage(plot.querySelector('canvas'), 0, top, width, height);
    const origin = plot.getBoundingClientRect();
    for (const label of plot.querySelectorAll('.dygraph-axis-label')) {
      const box = label.getBoundingClientRect(), isX = label.matches('.dygraph-axis-label-x');
      context.save();
      context.translate(isX && chart.xNames ? box.right - origin.left
        : isX ? (box.left + box.right) / 2 - origin.left : box.right - origin.left,
      isX ? box.top - origin.top + top + 10 : (box.top + box.bottom) / 2 - origin.top + top + 4);
      if (isX && chart.xNames) context.rotate(-38 * Math.PI / 180);
      context.textAlign = isX && !chart.xNames ? 'center' : 'right';
      write(label.textContent, 0, 0, '--soft', 11);
      context.restore();
    }
    context.textAlign = 'right';
    write(chart.x, width, top + height + 14, '--soft', 11);
    context.textAlign = 'left';
    shown.forEach((curve, i) => {
      const y = top + height + 32 + row * i;
      context.strokeStyle = theme(group.color(curve));
      context.lineWidth = 3;
      context.setLineDash(group.dash(curve));
      context.beginPath();
      context.moveTo(0, y);
      context.lineTo(26, y);
      context.stroke();
      write(group.names[curve], 34, y + 4, '--text', 12);
    });
    return canvas.toDataURL('image/png');
  }

  function plotOf(group, chart) {
    if (chart.log) chart.curves = onLogScale(chart.curves);
    if (chart.curves.every(curve => curve.y.every(y => y === null))) return null;
    const plot = make('div', { class: chart.xNames ? 'plot slanted' : 'plot', role: 'img',
      'aria-label': `${chart.title} over ${chart.x}` });
    undrawn.push(() => draw(group, chart, plot));
    return plot;
  }

  // A chart with its heading and the buttons that save it; `rest` lies below.
  function card(group, chart, unit, ...rest) {
    const plot = plotOf(group, chart);
    const caption = [chart.title, make('span', {}, unit)];
    if (plot === null) {
      return make('figure', { class: 'card' }, make('figcaption', {}, ...caption),
        make('p', { class: 'none' }, chart.nothing ?? 'No finite value.'));
    }
    const button = (name, title, onClick) => {
      const made = make('button', { type: 'button', title }, name);
      made.addEventListener('click', onClick);
      return made;
    };
    const tools = make('div', { class: 'tools' },
      button('PNG', 'save this chart as a picture', () =>
        save(fileName(chart, '.png'), pngOf(group, chart, plot, unit))),
      button('CSV', 'save the values of this chart', () => save(fileName(chart, '.csv'),
        'data:text/csv;charset=utf-8,' + encodeURIComponent(csvOf(group, chart)))));
    return make('figure', { class: 'card' }, make('figcaption', {}, ...caption), tools, plot,
      make('p', { class: 'axis' }, chart.x), ...rest);
  }

  function drawAll() {
    for (const drawOne of undrawn) drawOne();
    undrawn = [];
  }

  // Before a page is built anew.
  function clear() {
    for (const group of groups) for (const graph of group.graphs) graph.destroy();
    groups = [];
    undrawn = [];
  }

  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => {
    for (const group of groups)
      for (const graph of group.graphs) graph.updateOptions(group.options());
  });

  return { unitOf, groupOf, stylesOf, named, legend, card, drawAll, clear };
})();
