// The page of `octet report`, of the data that cli/report_page.h describes. It is built anew when
// newer data come; what a reader has chosen stays.
'use strict';
const Report = (() => {
  const { unitOf, groupOf, stylesOf, named, legend, card, drawAll, clear } = Charts;
  const { unpacked, onAxis, smoothed, difference, figureDifference, meanOf } = Curves;
  const { make, heading, charts, table } = Parts;

  const metrics = [
    { name: 'loss', title: 'Training loss', unit: 'nats per token', isSmoothed: true },
    { name: 'val_loss', title: 'Validation loss', unit: 'nats per token', dots: true },
    { name: 'grad_norm', title: 'Gradient norm', unit: 'before clipping, logarithmic', log: true,
      isSmoothed: true },
    { name: 'lr', title: 'Learning rate', unit: 'per step', zero: true },
    { name: 'tokens_per_s', title: 'Speed', zero: true, isSmoothed: true },
    { name: 'planned_bytes', title: 'Planned memory', unit: 'allocated by the plans', zero: true,
      bytes: true },
  ];
  // Of what evaluations tell beside the loss; others are called as they are in metrics.jsonl.
  const figureTitles = {
    accuracy: ['Validation accuracy', 'share of what is judged right'],
    reward_chosen: ['Reward of chosen answers', 'validation'],
    reward_rejected: ['Reward of rejected answers', 'validation'],
    margin: ['Margin of rewards', 'chosen less rejected, validation'],
    chosen_nll: ['Chosen answers', 'nats an answer, validation'],
    rejected_nll: ['Rejected answers', 'nats an answer, validation'],
  };
  const metricOfFigure = name => {
    const [title, unit] = figureTitles[name] ?? [`val_${name}`, 'validation'];
    return { name: `val_${name}`, title, unit, dots: true };
  };
  const maxBands = 2; // of means over steps; more hide each other
  const lossNames = { loss: 'training loss', val_loss: 'validation loss' };

  // Text of figures

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

  const withError = ({ mean, error }, text) =>
    text(mean) + (error === null ? '' : ` \u00b1 ${Number(error.toPrecision(2))}`);

  const unitsOf = runs => [...new Set(runs.map(run => run.unit ?? 'tokens'))];

  // Tables

  function resultsOf(group, runs) {
    const columns = [
      { name: 'recipe', key: 'recipe', className: 'name' },
      { name: 'steps', key: 'steps' },
      { name: 'training loss', key: 'train_loss', text: lossText },
      { name: 'validation loss', key: 'val_loss', text: lossText },
      { name: 'lowest (at step)', key: 'best_val_loss',
        text: (loss, run) => `${lossText(loss)} (${run.best_val_step})` },
      { name: 'speed', key: 'tokens_per_s',
        text: (speed, run) => `${shortText(speed)} ${run.unit ?? 'tokens'}/s` },
      { name: 'planned memory', key: 'planned_bytes', text: bytesText },
      { name: 'state', key: 'state_bytes', text: bytesText, missing: 'no checkpoint' },
      { name: 'skipped', key: 'skipped' },
      { name: 'spikes', key: 'spikes' },
    ];
    if (runs.some(run => run.rescales)) {
      columns.push({ name: 'rescales', key: 'rescales',
        text: n => `${n.measured} measured, ${n.at_run_time} at run time, ` +
          `${n.constant} constant, ${n.folded} folded` });
    }
    const cellOf = (run, { key, text = String, className, missing = 'none' }) => {
      const value = run[key] ?? null;
      return value === null ? { text: missing, className: 'none' }
        : { text: text(value, run), className };
    };
    const header = columns.map(({ name, className }) => ({ text: name, className }));
    return table(['run', ...header], runs.map((run, i) =>
      [named(group, i), ...columns.map(column => cellOf(run, column))]), 'stacked');
  }

  const figuresOf = (group, runs, names) => table(['run', ...names], runs.map((run, i) =>
    [named(group, i), ...names.map(name => run.figures?.[name] ?? null).map(value =>
      value === null ? { text: 'none', className: 'none' } : lossText(value))]), 'stacked');

  // The group whose validation loss is lower than that of all others by more than twice the
  // difference's standard error; none where a group has one seed, and so no error.
  function bestOf(members) {
    const others = i => members.filter((_, k) => k !== i);
    const isLower = (a, b) => {
      const { mean, error } = figureDifference(a, b, run => run.val_loss);
      return error !== null && mean < -2 * error;
    };
    if (members.length < 2 || members.some(runs => runs.length < 2)) return -1;
    return members.findIndex((runs, i) => others(i).every(other => isLower(runs, other)));
  }

  // A row for each configuration, with means over its seeds and standard errors.
  function groupsOf(names, members, base) {
    const hasAll = key => members.every(runs => runs.every(run => (run[key] ?? null) !== null));
    const best = hasAll('val_loss') ? bestOf(members) : -1;
    const figure = (runs, key, text) => {
      const values = runs.map(run => run[key] ?? null);
      return values.includes(null) ? { text: 'none', className: 'none' }
        : { text: withError(meanOf(values), text) };
    };
    const less = (runs, key) => runs === members[base] || !hasAll(key) ? { text: '\u2013' }
      : { text: withError(figureDifference(runs, members[base], run => run[key]), lossText) };
    const hasEnergy = members.flat().some(run => 'tokens_per_joule' in run);
    const rows = members.map((runs, i) => [named(names, i), String(runs.length),
      figure(runs, 'train_loss', lossText), less(runs, 'train_loss'),
      { ...figure(runs, 'val_loss', lossText), ...i === best && { className: 'best' } },
      less(runs, 'val_loss'), figure(runs, 'tokens_per_s', shortText),
      ...hasEnergy ? [figure(runs, 'tokens_per_joule', shortText)] : []]);
    const minus = 'minus ' + names.names[base];
    return table(['configuration', 'seeds', ...Object.values(lossNames).flatMap(name =>
      [name, `${name} ${minus}`]), `${unitsOf(members.flat()).join(' or ')}/s`, ...hasEnergy
      ? [`${unitsOf(members.flat()).join(' or ')}/J`] : []], rows, 'stacked');
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

  // A table a run, a row a step: what each prompt was continued with.
  const samplesOf = (group, samples) => samples.runs.map(({ run, prompts, rows }) =>
    make('figure', { class: 'card' }, make('figcaption', {}, ...named(group, run)),
      table(['step', ...prompts], rows.map(({ step, texts }) => [String(step),
        ...prompts.map((_, i) => texts[i] ?? { text: 'none', className: 'none' })]),
      'words samples')));

  // What a reader chooses

  const chosen = { axis: 'step', width: 0, base: null, of: 'loss', hidden: new Map() };

  // Widths of about a fiftieth, a twentieth, ... of the steps, round in decimals.
  function widthsOf(nSteps) {
    const round = value => {
      const power = 10 ** Math.floor(Math.log10(value)), digit = value / power;
      return power * (digit < 1.5 ? 1 : digit < 3.5 ? 2 : digit < 7.5 ? 5 : 10);
    };
    const widths = [50, 20, 10, 5].map(part => round(nSteps / part)).filter(width => width >= 2);
    return [0, ...new Set(widths)];
  }

  function choice(label, options, value, onChange) {
    const select = make('select', {}, ...options.map(([value, text]) =>
      make('option', { value }, text)));
    select.value = String(value);
    select.addEventListener('change', () => onChange(select.value));
    return make('label', {}, label + ' ', select);
  }

  function controlsOf({ runs, groups }, rebuild) {
    const set = (key, of = String) => value => { chosen[key] = of(value); rebuild(); };
    const units = unitsOf(runs).join(' or ');
    const widths = widthsOf(Math.max(...runs.map(run => run.steps)));
    const parts = [
      choice('x axis', [['step', 'steps'], ['tokens', units], ['seconds', 'time']], chosen.axis,
        set('axis')),
      choice('smoothing', widths.map(width => [width, width ? `mean of ${width} steps` : 'none']),
        chosen.width, set('width', Number))];
    if (groups.length > 1) {
      parts.push(choice('difference of', Object.entries(lossNames), chosen.of, set('of')),
        choice('minus', groups.map(({ label }, i) => [i, label]), chosen.base,
          set('base', Number)));
    }
    return make('div', { class: 'controls' }, ...parts);
  }

  // Charts

  // Runs of one group have its colour, and dashes by their seeds.
  function runStyles({ runs, groups }) {
    const styles = runs.map(() => null);
    stylesOf(groups.length, false).forEach(({ color, dash }, g) =>
      groups[g].runs.forEach((run, i) => { styles[run] = { color, dash: dash + i }; }));
    return styles;
  }

  // Of curves with these names, from one building of the page to the next.
  function visibleOf(names) {
    const key = names.join('\n');
    if (!chosen.hidden.has(key)) chosen.hidden.set(key, names.map(() => true));
    return chosen.hidden.get(key);
  }

  function differenceOf(data, members) {
    const { runs, groups } = data, base = chosen.base;
    const shown = groups.map((_, i) => i).filter(i => i !== base);
    const styles = stylesOf(groups.length, false);
    const name = i => groups[i].label +
      (members[i].length > 1 ? ` (${members[i].length} seeds)` : '');
    const names = shown.map(name);
    const group = groupOf(names, shown.map(i => styles[i]), { isVisible: visibleOf(names) });
    const width = chosen.of === 'loss' ? chosen.width : 0;
    const curves = shown.map(i =>
      difference(members[i], members[base], chosen.of, chosen.axis, width));
    const what = lossNames[chosen.of];
    const title = what[0].toUpperCase() + what.slice(1) + ' minus ' + groups[base].label;
    const hasBand = curves.some(curve => curve.low !== undefined);
    const unit = 'nats per token' + (width > 0 ? `, mean of ${width} steps` : '') +
      (hasBand ? '; band: standard error over seeds' : '');
    const made = card(group, { title, x: axisName(runs), curves, zeroLine: true, zero: true,
      isError: true, dots: chosen.of === 'val_loss',
      nothing: 'The runs have no part of this axis in common.' }, unit, legend(group));
    made.setAttribute('class', 'card first');
    return made;
  }

  const axisName = runs => chosen.axis === 'tokens' ? unitsOf(runs).join(' or ') : chosen.axis;

  function metricOf(runs, group, { name, title, unit, isSmoothed, ...options }) {
    const width = isSmoothed ? chosen.width : 0;
    const hasBands = width === 0 || runs.length <= maxBands;
    const curves = runs.map(run => {
      const { low, high, ...curve } = smoothed(unpacked(run, name), width);
      return onAxis(run, hasBands ? { low, high, ...curve } : curve, chosen.axis);
    });
    return card(group, { title, x: axisName(runs), curves, ...options },
      (unit ?? `${unitsOf(runs).join(' or ')} per second`) +
      (width > 0 ? `, mean of ${width} steps` : ''));
  }

  function lead(runs) {
    const nSteps = runs.reduce((n, run) => n + run.steps_logged, 0);
    return make('p', { class: 'lead' }, `${runs.length} run${runs.length === 1 ? '' : 's'}, ` +
      `${nSteps} steps in all. A shaded band reaches from the least to the largest value of the ` +
      'steps that share a point, or, of at most two runs, a mean; a mark at the top stands for a ' +
      "value that is not finite. Drag to zoom, double-click to see all again, click a run's name " +
      'to hide it.');
  }

  function partsOf(data) {
    const { runs, groups, samples, evaluations, differences, figures = [] } = data;
    const names = runs.map(run => run.label);
    const group = groupOf(names, runStyles(data),
      { titles: runs.map(run => run.name), isVisible: visibleOf(names) });
    const members = groups.map(({ runs: indices }) => indices.map(i => runs[i]));
    const parts = [];
    if (groups.length > 1) parts.push(differenceOf(data, members));
    const shown = [...metrics, ...figures.map(metricOfFigure)];
    parts.push(legend(group), charts(shown.map(metric => metricOf(runs, group, metric))));
    if (members.some(runs => runs.length > 1)) {
      parts.push(heading('Results by configuration'), groupsOf(
        groupOf(groups.map(({ label }) => label), stylesOf(groups.length, false)), members,
        chosen.base));
    }
    parts.push(heading('Results'), resultsOf(group, runs));
    if (figures.length > 0)
      parts.push(heading('Validation figures'), figuresOf(group, runs, figures));
    const maps = runs.flatMap(({ heat }, i) => heat.length === 0 ? [] : [make('figure',
      { class: 'card' }, make('figcaption', {}, ...named(group, i), make('span', {},
        "the worst edge of each layer and sampled step: red where it left its format's window, " +
        'the darker the farther; blue what was lost inside')), heatMap(heat))]);
    if (maps.length > 0) parts.push(heading('Edges outside their window'), charts(maps));
    if (samples.shown > 0) {
      parts.push(heading('Samples' + (samples.shown === samples.of ? ''
        : `: the last ${samples.shown} of ${samples.of}`)), ...samplesOf(group, samples));
    }
    if (evaluations.rows.length > 0) {
      parts.push(heading('Evaluations'), table(['run', ...evaluations.columns],
        evaluations.rows.map((row, i) => [named(group, evaluations.runs[i]), ...row])));
    }
    if (runs.length > 1)
      parts.push(heading('Where the configurations differ'), differencesOf(group, differences));
    return parts;
  }

  // Into `place`; once more when newer data have come. Controls that a reader may hold stay, unless
  // they are of other runs.
  function build(place, first) {
    let data = first;
    const body = make('div', {}), top = make('div', {});
    const rebuild = () => {
      body.style.minHeight = `${body.offsetHeight ?? 0}px`; // so that the page does not jump
      clear();
      body.replaceChildren(...partsOf(data));
      drawAll();
      body.style.minHeight = '';
    };
    const begin = () => {
      chosen.base = data.baseline;
      chosen.width = widthsOf(Math.max(...data.runs.map(run => run.steps)))[2] ?? 0;
      top.replaceChildren(lead(data.runs), controlsOf(data, rebuild));
    };
    const labels = ({ runs }) => JSON.stringify(runs.map(run => run.label));
    begin();
    place.append(top, body);
    rebuild();
    return newer => {
      const isSame = labels(newer) === labels(data);
      data = newer;
      if (!isSame) begin();
      top.replaceChildren(lead(data.runs), top.children[1]);
      rebuild();
    };
  }

  // Asks the server of the page for data newer than its own, again and again.
  function follow(update, version) {
    const word = document.querySelector('#state');
    const ask = async () => {
      try {
        const answer = await fetch(`data.json?after=${version}`);
        if (answer.status === 200) {
          const { version: newer, ...data } = await answer.json();
          version = newer;
          update(data);
        }
        word.replaceChildren(answer.ok ? 'following' : `the server answers ${answer.status}`);
      } catch {
        word.replaceChildren('the server does not answer');
      }
      setTimeout(ask, 2000);
    };
    setTimeout(ask, 2000);
  }

  return { build, follow };
})();
