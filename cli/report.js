// Draws the curves of `octet report` with dygraphs: hover, zoom, and a legend that hides runs.
// Data: the element #data, {"runs": [name, ...], "charts": [...]} (cli/report_curves.h).
'use strict';
(() => {
  const { runs, charts } = JSON.parse(document.getElementById('data').textContent);
  const dashes = [null, [7, 4], [2, 3], [9, 3, 2, 3]]; // beyond eight runs
  const nColors = 8;
  const columnWidth = 3.2; // pixels of a drawn point; more points hide each other
  const isVisible = runs.map(() => true);

  const theme = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const colors = () => runs.map((_, run) => theme('--run-' + (run % nColors)));
  const lines = () => ({ axisLineColor: theme('--axis'), gridLineColor: theme('--grid') });

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

  // dygraphs' ticks with our labels; of steps whole numbers alone.
  function ticker({ isBytes = false, isStep = false }) {
    return (low, high, pixels, options, graph, values) => {
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

  // Each point the mean of `size` points of the curve, and their least and largest value; y is null
  // where none is finite.
  function grouped(curve, size) {
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
        point.low = Math.min(point.low, (curve.low ?? curve.y)[i]);
        point.high = Math.max(point.high, (curve.high ?? curve.y)[i]);
      }
      points.push(n > 0 ? point : { x: curve.x[begin], y: null });
    }
    return points;
  }

  // As coarse as the part between these steps may be.
  function pointsOf(chart, [from, to], width) {
    return chart.curves.map(curve => {
      const n = curve.x.filter(x => from <= x && x <= to).length;
      return grouped(curve, Math.max(1, Math.ceil(n / Math.max(100, width / columnWidth))));
    });
  }

  // dygraphs' rows: a step, and [low, mean, high] of each run; null: no point there, NaN: a gap.
  function rowsOf(points, { first, last }) {
    const rows = new Map();
    const rowAt = x => {
      if (!rows.has(x)) rows.set(x, [x, ...runs.map(() => null)]);
      return rows.get(x);
    };
    if (first === last) { // a range of one step has no width
      rowAt(first - 1);
      rowAt(last + 1);
    }
    points.forEach((curve, run) => {
      for (const { x, y, low, high } of curve)
        rowAt(x)[run + 1] = y === null ? [NaN, NaN, NaN] : [low, y, high];
    });
    return [...rows.values()].sort((a, b) => a[0] - b[0]);
  }

  const hasDots = (chart, points) => chart.dots && points.every(curve => curve.length <= 60);

  function extent(chart) {
    let first = Infinity, last = -Infinity;
    for (const { x } of chart.curves) {
      if (x.length === 0) continue;
      first = Math.min(first, x[0]);
      last = Math.max(last, x.at(-1));
    }
    return { first, last };
  }

  function element(name, className, text) {
    const made = document.createElement(name);
    made.className = className;
    made.textContent = text;
    return made;
  }

  // What the runs have at the step under the cursor, or near it.
  function fillTip(tip, chart, points, x, window) {
    const nothing = chart.log ? 'zero or not finite' : 'not finite';
    const rows = [element('b', '', 'step ' + Math.round(x).toLocaleString('en'))];
    points.forEach((curve, run) => {
      if (!isVisible[run] || curve.length === 0) return;
      const near = curve.reduce((a, b) => Math.abs(b.x - x) < Math.abs(a.x - x) ? b : a);
      if (Math.abs(near.x - x) > 0.03 * (window[1] - window[0])) return;
      const row = element('div', '', '');
      row.append(element('span', 'key key-' + run, ''), element('span', 'of', runs[run]),
        element('span', 'value', near.y === null ? nothing : valueText(near.y, chart.bytes)));
      if (near.low < near.high) {
        row.append(element('span', 'range', valueText(near.low, chart.bytes) + ' \u2013 ' +
          valueText(near.high, chart.bytes)));
      }
      if (Math.abs(near.x - x) > 0.005 * (window[1] - window[0]))
        row.append(element('span', 'range', 'at ' + Math.round(near.x).toLocaleString('en')));
      rows.push(row);
    });
    tip.replaceChildren(...rows);
  }

  // A mark at the top for values that are not finite.
  function drawGaps(context, area, graph, chart) {
    chart.curves.forEach(({ gaps }, run) => {
      if (!isVisible[run]) return;
      context.fillStyle = theme('--run-' + (run % nColors));
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

  function draw(chart, plot) {
    const ends = extent(chart);
    const all = [ends.first, ends.last];
    let points = pointsOf(chart, all, plot.clientWidth);
    const tip = element('div', 'tip', '');
    const graph = new Dygraph(plot, rowsOf(points, ends), {
      labels: ['step', ...runs.map((_, run) => String(run))],
      series: Object.fromEntries(runs.map((_, run) =>
        [String(run), { strokePattern: dashes[Math.floor(run / nColors) % dashes.length] }])),
      customBars: true, connectSeparatedPoints: true, fillAlpha: 0.16, strokeWidth: 1.7,
      drawPoints: hasDots(chart, points), pointSize: 2.6, highlightCircleSize: 3.5,
      logscale: chart.log, includeZero: chart.zero, legend: 'never', colors: colors(), ...lines(),
      xlabel: 'step', xLabelHeight: 14, axisLabelFontSize: 11, xRangePad: 6, rightGap: 12,
      gridLineWidth: 1,
      axes: {
        x: { drawGrid: false, ticker: ticker({ isStep: true }), pixelsPerLabel: 55 },
        y: { ticker: ticker({ isBytes: chart.bytes }), axisLabelWidth: 58, pixelsPerLabel: 26,
             labelsKMG2: chart.bytes },
      },
      underlayCallback: (context, area, g) => drawGaps(context, area, g, chart),
      highlightCallback: (event, x) => {
        fillTip(tip, chart, points, x, graph.xAxisRange());
        tip.style.display = 'block';
        const at = graph.toDomXCoord(x), isRight = at > plot.clientWidth / 2;
        tip.style.left = isRight ? '' : at + 14 + 'px';
        tip.style.right = isRight ? plot.clientWidth - at + 14 + 'px' : '';
      },
      unhighlightCallback: () => { tip.style.display = 'none'; },
      zoomCallback: (from, to) => {
        points = pointsOf(chart, [from, to], plot.clientWidth);
        graph.updateOptions({ file: rowsOf(points, ends), drawPoints: hasDots(chart, points) });
      },
    });
    plot.append(tip);
    return graph;
  }

  const graphs = charts.flatMap((chart, i) => {
    const plot = document.getElementById('chart-' + i);
    return plot === null ? [] : [draw(chart, plot)];
  });

  for (const box of document.querySelectorAll('.legend input')) {
    box.addEventListener('change', () => {
      isVisible[box.value] = box.checked;
      for (const graph of graphs) graph.setVisibility(Number(box.value), box.checked);
    });
  }
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => {
    for (const graph of graphs) graph.updateOptions({ colors: colors(), ...lines() });
  });
})();
