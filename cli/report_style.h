// The style of the page that `octet report` writes.
#pragma once

namespace octet {

inline constexpr const char* kReportStyle = R"(
:root {
  color-scheme: light dark;
  --page: #f6f7f9; --card: #ffffff; --edge: #e2e5ea; --text: #1c2330; --soft: #667085;
  --grid: #e9ecf1; --axis: #98a2b3; --best: #eaf5ee;
  --run-0: #2563eb; --run-1: #d9730d; --run-2: #0d8a5f; --run-3: #d02f4c;
  --run-4: #7c3aed; --run-5: #0891b2; --run-6: #be1d84; --run-7: #6b7a12;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #11151c; --card: #1a2029; --edge: #2b333f; --text: #e4e8ee; --soft: #97a3b4;
    --grid: #262e39; --axis: #566273; --best: #173226;
    --run-0: #6ea3ff; --run-1: #f5a04e; --run-2: #45c894; --run-3: #ff7088;
    --run-4: #b493ff; --run-5: #45c8e0; --run-6: #f27cc4; --run-7: #bccb52;
  }
}
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1280px; padding: 28px 24px 48px; background: var(--page);
  color: var(--text); font: 14px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
h1 { font-size: 22px; margin: 0; letter-spacing: -0.01em; }
h2 { font-size: 15px; margin: 30px 0 10px; }
.lead { color: var(--soft); margin: 2px 0 18px; }
.legend { display: flex; flex-wrap: wrap; gap: 8px; margin: 0 0 16px; padding: 0;
  list-style: none; }
.legend label { display: inline-flex; align-items: center; gap: 8px; padding: 4px 12px 4px 10px;
  background: var(--card); border: 1px solid var(--edge); border-radius: 999px; cursor: pointer; }
.legend label:has(:checked) { color: var(--text); }
.legend label:not(:has(:checked)) { opacity: .5; text-decoration: line-through; }
.legend input { position: absolute; opacity: 0; }
.legend label:focus-within { outline: 2px solid var(--run-0); }
.key { display: inline-block; flex: none; width: 22px; height: 0; border-top: 3px solid; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(440px, 100%), 1fr));
  gap: 16px; }
.card { background: var(--card); border: 1px solid var(--edge); border-radius: 10px;
  padding: 14px 16px 8px; margin: 0; min-width: 0; }
.card figcaption { font-weight: 600; }
.card figcaption span { font-weight: 400; color: var(--soft); margin-left: 6px; }
svg { display: block; width: 100%; height: auto; }
.card figcaption .key { margin: 0 8px 0 0; vertical-align: middle; }
.heat text { fill: var(--soft); font-size: 11px; }
.plot { position: relative; width: 100%; height: 290px; margin-top: 10px; cursor: crosshair; }
.dygraph-axis-label { color: var(--soft); font-variant-numeric: tabular-nums; }
.dygraph-xlabel { color: var(--soft); text-align: right; }
.tip { display: none; position: absolute; top: 4px; z-index: 20; pointer-events: none;
  max-width: 75%; padding: 6px 10px; background: var(--card); border: 1px solid var(--edge);
  border-radius: 8px; box-shadow: 0 2px 10px #0003; font-size: 12px; white-space: nowrap;
  font-variant-numeric: tabular-nums; }
.tip b { display: block; font-weight: 600; }
.tip div { display: flex; align-items: center; gap: 8px; }
.tip .key { width: 14px; }
.tip .of { overflow: hidden; text-overflow: ellipsis; }
.tip .value { margin-left: auto; font-weight: 600; }
.tip .range { color: var(--soft); }
.scroll { overflow-x: auto; padding: 0; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: 8px 12px; text-align: right; white-space: nowrap; }
th { color: var(--soft); font-weight: 600; font-size: 12px; border-bottom: 1px solid var(--edge); }
tr + tr td { border-top: 1px solid var(--grid); }
th:first-child, td:first-child, .name, .words th, .words td { text-align: left; }
td .key, th .key { vertical-align: middle; margin-right: 8px; }
td.best { background: var(--best); font-weight: 600; }
.words td { white-space: normal; overflow-wrap: anywhere; }
.words td:first-child { white-space: nowrap; }
code { font: 12.5px/1.5 ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; }
.none { color: var(--soft); }
@media print { body { max-width: none; } .card { break-inside: avoid; } }
)";

}  // namespace octet
