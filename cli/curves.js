// What charts show of runs: curves over steps, tokens or seconds, smoothed, and how far runs lie
// from others. No element of the page is touched here.
'use strict';
const Curves = (() => {
  // A run's curve with what its JSON leaves out.
  function unpacked(run, name) {
    const curve = run.curves[name];
    const x = curve.x ?? run.axes.step;
    const y = Array.isArray(curve.y) ? curve.y : x.map(() => curve.y);
    return { gaps: [], ...curve, x, y };
  }

  // The piece of the ascending xs that x lies in, or the nearest one.
  function pieceAt(xs, x) {
    let low = 0, high = xs.length - 2;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (xs[middle] <= x) low = middle;
      else high = middle - 1;
    }
    return Math.max(low, 0);
  }

  // Between the points on a straight line; beyond the ends on the last one.
  function valueAt(xs, ys, x) {
    if (xs.length < 2) return ys[0];
    const i = pieceAt(xs, x), width = xs[i + 1] - xs[i];
    return width > 0 ? ys[i] + (x - xs[i]) / width * (ys[i + 1] - ys[i]) : ys[i];
  }

  // The curve over `axis`, one of run.axes.
  function onAxis(run, curve, axis) {
    if (axis === 'step') return curve;
    const to = step => valueAt(run.axes.step, run.axes[axis], step);
    return { ...curve, x: curve.x.map(to), gaps: curve.gaps.map(to) };
  }

  // Each point the mean of those within `width` of x around it, with their least and largest value.
  function smoothed(curve, width) {
    if (width <= 0) return curve;
    const { x, y } = curve, out = { ...curve, y: [], low: [], high: [] };
    let begin = 0, end = 0;
    x.forEach((at, i) => {
      while (x[begin] < at - width / 2) ++begin;
      while (end < x.length && x[end] <= at + width / 2) ++end;
      let n = 0, mean = 0, low = Infinity, high = -Infinity;
      for (let k = begin; k < end; ++k) {
        if (y[k] === null) continue;
        mean += (y[k] - mean) / ++n;
        low = Math.min(low, (curve.low ?? y)[k]);
        high = Math.max(high, (curve.high ?? y)[k]);
      }
      const isPoint = y[i] !== null && n > 0;
      out.y.push(isPoint ? mean : null);
      out.low.push(isPoint ? low : null);
      out.high.push(isPoint ? high : null);
    });
    return out;
  }

  // The curve less the other one, where that one has values too.
  function minus({ x, y }, other) {
    const finite = other.x.map((_, i) => i).filter(i => other.y[i] !== null);
    const xs = finite.map(i => other.x[i]), ys = finite.map(i => other.y[i]);
    const isWithin = at => xs.length > 0 && xs[0] <= at && at <= xs.at(-1);
    const kept = x.map((_, i) => i).filter(i => isWithin(x[i]));
    return { x: kept.map(i => x[i]),
      y: kept.map(i => y[i] === null ? null : y[i] - valueAt(xs, ys, x[i])) };
  }

  // Mean and its standard error; of one value no error.
  function meanOf(values) {
    const n = values.length, mean = values.reduce((sum, value) => sum + value, 0) / n;
    const squares = values.reduce((sum, value) => sum + (value - mean) ** 2, 0);
    return { n, mean, error: n > 1 ? Math.sqrt(squares / (n - 1) / n) : null };
  }

  // The seeds that both have, or null where the difference is not one of pairs.
  function pairsOf(runs, base) {
    const pairs = runs.flatMap(run => {
      const other = base.find(other => other.seed !== '' && other.seed === run.seed);
      return other === undefined ? [] : [[run, other]];
    });
    return pairs.length === runs.length || pairs.length > 1 ? pairs : null;
  }

  // Mean over seeds of `runs` less `base` of a figure of each, with its standard error: of the
  // pairs of one seed where there are such, else of both means; null where either has none.
  function figureDifference(runs, base, of) {
    const pairs = pairsOf(runs, base);
    if (pairs !== null) return meanOf(pairs.map(([run, other]) => of(run) - of(other)));
    const [a, b] = [runs, base].map(all => meanOf(all.map(of)));
    const error = a.error === null || b.error === null ? null : Math.hypot(a.error, b.error);
    return { n: Math.min(a.n, b.n), mean: a.mean - b.mean, error };
  }

  // Curves at the x of the first one, in which all have values: mean and standard error.
  function meanCurve(curves) {
    const [first, ...rest] = curves;
    const points = [];
    first.x.forEach((x, i) => {
      const values = [first.y[i], ...rest.map(curve => {
        const isIn = curve.x.length > 0 && curve.x[0] <= x && x <= curve.x.at(-1);
        if (!isIn) return null;
        const k = pieceAt(curve.x, x);
        return curve.y[k] === null || (curve.y[k + 1] ?? null) === null && curve.x[k] !== x ? null
          : valueAt(curve.x, curve.y, x);
      })];
      if (!values.includes(null)) points.push({ x, ...meanOf(values) });
    });
    return points;
  }

  // What chart.curves takes: the mean, and its error on both sides where there is one.
  function banded(points) {
    const curve = { x: points.map(({ x }) => x), y: points.map(({ mean }) => mean), gaps: [] };
    if (points.length === 0 || points.some(({ error }) => error === null)) return curve;
    return { ...curve, low: points.map(({ mean, error }) => mean - error),
      high: points.map(({ mean, error }) => mean + error) };
  }

  // The curves `name` of runs less those of base over an axis, smoothed over steps before.
  function difference(runs, base, name, axis, width) {
    const of = run => onAxis(run, smoothed(unpacked(run, name), width), axis);
    const pairs = pairsOf(runs, base);
    if (pairs !== null)
      return banded(meanCurve(pairs.map(([run, other]) => minus(of(run), of(other)))));
    const [a, b] = [runs, base].map(all => meanCurve(all.map(of)));
    const [mean, error] = ['mean', 'error'].map(key => ({ x: b.map(({ x }) => x),
      y: b.map(point => point[key]) }));
    const less = minus({ x: a.map(({ x }) => x), y: a.map(point => point.mean) }, mean);
    return banded(less.x.map((x, i) => {
      const own = a.find(point => point.x === x).error, other = valueAt(error.x, error.y, x);
      const hasError = own !== null && !error.y.includes(null);
      return { x, mean: less.y[i], error: hasError ? Math.hypot(own, other) : null };
    }));
  }

  return { unpacked, onAxis, smoothed, difference, figureDifference, meanOf };
})();
