// Builds the pages of `octet report` and `octet study report` in <main>, of the JSON in #data: runs
// as cli/report_page.h says, or studies as study.json has them.
(() => {
  const { make, unitOf, groupOf, named, legend, plotOf, drawAll } = Charts;
  const data = JSON.parse(document.getElementById('data').textContent);

  const heading = text => make('h2', {}, text);
  const charts = children => make('div', { class: 'charts' }, ...children);
  const figure = (caption, unit, ...children) => make('figure', { class: 'card' },
    make('figcaption', {}, ...caption, make('span', {}, unit)), ...children);

  // Cells: text, a list of children, or {text, className}.
  function table(header, rows, className = '') {
    const cell = (name, of) => Array.isArray(of) ? make(name, {}, ...of)
      : make(name, { class: of.className ?? '' }, of.text ?? of);
    const lines = [[header, 'th'], ...rows.map(row => [row, 'td'])].map(([cells, name]) =>
      make('tr', {}, ...cells.map(of => cell(name, of))));
    return make('div', { class: 'card scroll' }, make('table', { class: className }, ...lines));
  }

  // Reports

  const metrics = [
    { name: 'loss', title: 'Training loss', unit: 'nats per token' },
    { name: 'val_loss', title: 'Validation loss', unit: 'nats per token', dots: true },
    { name: 'grad_norm', title: 'Gradient norm', unit: 'before clipping, logarithmic', log: true },
    { name: 'lr', title: 'Learning rate', unit: 'per step', zero: true },
    { name: 'tokens_per_s', title: 'Speed', unit: 'tokens per second', zero: true },
    { name: 'mem_bytes', title: 'Memory', unit: 'allocated by the plans', zero: true, bytes: true },
  ];

  // Four decimals; where a loss is so large that they say nothing, four digits in all.
  const lossText = loss => Math.abs(loss) < 1e6 ? loss.toFixed(4) : loss.toPrecision(4);

  function shortText(value) {
    const [size, name] = unitOf(value, false);
    return Number((value / size).toPrecision(name ? 3 : 4)) + name;
  }

  function bytesText(value) {
    const [size, name] = unitOf(value, true);
    return (value / size).toFixed(size > 1 ? 1 : 0) + name;
  }

  function resultsOf(group, runs) {
    const columns = [
      { name: 'recipe', key: 'recipe', className: 'name' },
      { name: 'steps', key: 'steps' },
      { name: 'training loss', key: 'train_loss', text: lossText },
      { name: 'validation loss', key: 'val_loss', text: lossText },
      { name: 'best (at step)', key: 'best_val_loss', best: Math.min,
        text: (loss, run) => `${lossText(loss)} (${run.best_val_step})` },
      { name: 'tokens/s', key: 'tokens_per_s', text: shortText, best: Math.max },
      { name: 'memory', key: 'mem_bytes', text: bytesText, best: Math.min },
      { name: 'state', key: 'state_bytes', text: bytesText, missing: 'no checkpoint' },
      { name: 'skipped', key: 'skipped' },
      { name: 'spikes', key: 'spikes' },
    ];
    const cellOf = (run, { key, text = String, best, className, missing = 'none' }) => {
      const value = run[key] ?? null;
      if (value === null) return { text: missing, className: 'none' };
      const all = runs.map(run => run[key] ?? null).filter(value => value !== null);
      const isBest = best !== undefined && runs.length > 1 && value === best(...all);
      return { text: text(value, run), className: isBest ? 'best' : className };
    };
    const header = columns.map(({ name, className }) => ({ text: name, className }));
    return table(['run', ...header], runs.map((run, i) =>
      [named(group, i), ...columns.map(column => cellOf(run, column))]));
  }

  // Layers by sampled steps: red is how far the worst edge is outside, blue what was lost inside.
  function heatMap(cells) {
    const steps = [...new Set(cells.map(cell => cell.step))];
    const layers = [...new Set(cells.map(cell => cell.layer))].sort((a, b) => a - b);
    const map = make('div', { class: 'heat', role: 'img',
      'aria-label': `${layers.length} layers over ${steps.length} sampled steps` });
    map.style.gridTemplateColumns = `max-content repeat(${steps.length}, minmax(0, 1fr))`;
    const put = (element, row, column) => {
      element.style.gridArea = `${row + 1} / ${column}`;
      map.append(element);
    };
    layers.forEach((layer, row) =>
      put(make('span', {}, layer < 0 ? 'outside' : `layer ${layer}`), row, 1));
    for (const { step, layer, edge, dtype, rescale, zeros, saturated } of cells) {
      const where = layer < 0 ? 'outside the layers' : `layer ${layer}`;
      const wish = rescale === 0 ? 'inside its window' : `wants 2^${rescale}`;
      const cell = make('i', { title: `${where}, step ${step}: ${edge} (${dtype}), ${wish}, ` +
        `zeros ${zeros.toFixed(4)}, saturated ${saturated.toFixed(6)}` });
      const share = rescale === 0 ? 0.08 + 0.5 * Math.min(1, zeros + saturated)
        : Math.min(1, 0.3 + Math.abs(rescale) / 16);
      cell.style.background = `rgb(${rescale === 0 ? '47 111 208' : '208 59 47'} / ${share})`;
      put(cell, layers.indexOf(layer), steps.indexOf(step) + 2);
    }
    put(make('p', {}, make('span', {}, `step ${steps[0]}`), make('span', {}, `${steps.at(-1)}`)),
      layers.length, '2 / auto / -1');
    return map;
  }

  function differencesOf(group, lines) {
    if (lines.length === 0) return make('p', { class: 'none' }, 'Nowhere.');
    return table(['key', ...group.names.map((_, i) => named(group, i))],
      lines.map(({ key, values }) => [key, ...values].map(text => [make('code', {}, text)])),
      'words');
  }

  function reportOf({ runs, evaluations, differences }) {
    const group = groupOf(runs.map(run => run.name));
    const nSteps = runs.reduce((n, run) => n + run.steps_logged, 0);
    const parts = [
      make('p', { class: 'lead' }, `${runs.length} run${runs.length === 1 ? '' : 's'}, ` +
        `${nSteps} steps in all. A shaded band reaches from the least to the largest value of ` +
        'the steps that share a point; a mark at the top stands for a value that is not finite. ' +
        "Drag to zoom, double-click to see all again, click a run's name to hide it."),
      legend(group),
      charts(metrics.map(({ name, title, unit, ...options }) => {
        const curves = runs.map(run => run.curves[name]);
        return figure([title], unit, plotOf(group, { title, x: 'step', curves, ...options }));
      })),
      heading('Results'), resultsOf(group, runs)];
    const maps = runs.flatMap(({ heat }, i) => heat.length === 0 ? [] : [figure(named(group, i),
      "the worst edge of each layer and sampled step: red where it left its format's window, the " +
      'darker the farther; blue what was lost inside', heatMap(heat))]);
    if (maps.length > 0) parts.push(heading('Edges outside their window'), charts(maps));
    if (evaluations.rows.length > 0) {
      parts.push(heading('Evaluations'), table(['run', ...evaluations.columns],
        evaluations.rows.map((row, i) => [named(group, evaluations.runs[i]), ...row])));
    }
    if (runs.length > 1) {
      parts.push(heading('Where the configurations differ'), differencesOf(group, differences));
    }
    return parts;
  }

  // Studies

  function studyFigureOf({ title, x_title, y_title, x_names, log, zero, dots, curves, svg }) {
    if (curves === undefined) { // of an older study
      const source = 'data:image/svg+xml,' + encodeURIComponent(svg);
      return make('figure', { class: 'card drawn' }, make('img', { alt: title, src: source }));
    }
    const group = groupOf(curves.map(curve => curve.name), { eachDashed: true });
    const gapsOf = ({ x, y }) => x.filter((_, i) => y[i] === null || log && y[i] <= 0);
    const plot = plotOf(group, { title, x: x_title, xNames: x_names.length > 0 ? x_names : null,
      log, zero, dots, curves: curves.map(curve => ({ ...curve, gaps: gapsOf(curve) })) });
    return figure([title], log ? y_title + ', logarithmic' : y_title, plot, legend(group));
  }

  const studyOf = ({ title, figures, columns, rows }) =>
    [heading(title), charts(figures.map(studyFigureOf)), table(columns, rows)];

  document.body.classList.toggle('studies', data.studies !== undefined);
  document.querySelector('main').append(...data.studies?.flatMap(studyOf) ?? reportOf(data));
  drawAll();
})();
