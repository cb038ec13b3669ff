// Builds the pages of `octet report` and `octet study report` in <main>, of the JSON in #data: runs
// (report.js), or studies as study.json has them.
(() => {
  const { groupOf, stylesOf, legend, card, drawAll } = Charts;
  const { make, heading, charts, table } = Parts;
  const data = JSON.parse(document.getElementById('data').textContent);

  function studyFigureOf({ title, x_title, y_title, x_names, log, zero, dots, curves, svg }) {
    if (curves === undefined) { // of an older study
      const source = 'data:image/svg+xml,' + encodeURIComponent(svg);
      return make('figure', { class: 'card drawn' }, make('img', { alt: title, src: source }));
    }
    const group = groupOf(curves.map(curve => curve.name), stylesOf(curves.length,
      x_names.length === 0));
    const gapsOf = ({ x, y }) => x.filter((_, i) => y[i] === null || log && y[i] <= 0);
    const chart = { title, x: x_title, xNames: x_names.length > 0 ? x_names : null, log, zero, dots,
      curves: curves.map(curve => ({ ...curve, gaps: gapsOf(curve) })) };
    return card(group, chart, log ? y_title + ', logarithmic' : y_title, legend(group));
  }

  const studyOf = ({ title, figures, columns, rows }) =>
    [heading(title), charts(figures.map(studyFigureOf)), table(columns, rows, 'stacked')];

  const main = document.querySelector('main');
  document.body.classList.toggle('studies', data.studies !== undefined);
  if (data.studies !== undefined) {
    main.append(...data.studies.flatMap(studyOf));
    drawAll();
  } else {
    const update = Report.build(main, data);
    if (data.version !== undefined) Report.follow(update, data.version);
  }
})();
