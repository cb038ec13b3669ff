#include "cli/report_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>

#include "base/units.h"
#include "cli/eval_tasks.h"
#include "cli/html_text.h"
#include "cli/report_curves.h"
#include "cli/report_heat.h"
#include "cli/report_style.h"

namespace octet {

// Embedded by cli/CMakeLists.txt.
extern const std::string_view kDygraphsScript, kDygraphsStyle, kDygraphsLicence, kReportScript;

namespace {

constexpr size_t kRunColors = 8;

std::string chart(const ReportChart& chart, size_t index) {
  const std::string plot = fmt::format(
      "<div class=\"plot\" id=\"chart-{}\" role=\"img\" aria-label=\"{} over step\"></div>", index,
      chart.title);
  return fmt::format(
      "<figure class=\"card\"><figcaption>{}<span>{}</span></figcaption>\n{}</figure>\n",
      chart.title, chart.unit, chart.is_empty ? "<p class=\"none\">No finite value.</p>" : plot);
}

// A colour for each run; their dashes are the script's.
std::string run_styles(size_t n_runs) {
  std::string out;
  for (size_t i = 0; i < n_runs; ++i) {
    out += fmt::format(".key-{} {{ border-color: var(--run-{}); border-top-style: {}; }}\n", i,
                       i % kRunColors, i < kRunColors ? "solid" : "dashed");
  }
  return out;
}

std::string key(size_t run) {
  return fmt::format("<span class=\"key key-{}\"></span>", run);
}

std::string legend(const std::vector<RunData>& runs) {
  std::string out = "<ul class=\"legend\">\n";
  for (size_t i = 0; i < runs.size(); ++i) {
    out +=
        fmt::format("<li><label><input type=\"checkbox\" value=\"{}\" checked>{}{}</label></li>\n",
                    i, key(i), html_text(runs[i].name));
  }
  return out + "</ul>\n";
}

std::string loss_text(double loss) {
  return std::isfinite(loss) ? loss_number(loss) : "<span class=\"none\">none</span>";
}

std::string cell(const std::string& text, bool is_best = false) {
  return fmt::format("<td{}>{}</td>", is_best ? " class=\"best\"" : "", text);
}

std::string results(const std::vector<RunData>& runs) {
  std::string out =
      "<h2>Results</h2>\n<div class=\"card scroll\"><table>\n<tr><th>run</th><th "
      "class=\"name\">recipe</th>"
      "<th>steps</th><th>training loss</th><th>validation loss</th><th>best (at step)</th>"
      "<th>tokens/s</th><th>memory</th><th>state</th><th>skipped</th>"
      "<th>spikes</th></tr>\n";
  std::vector<RunSummary> summaries;
  for (const RunData& run : runs) summaries.push_back(summarize(run));
  const auto is_best = [&](const auto& value_of, const RunSummary& summary) {
    const auto less = [&](const RunSummary& other) { return value_of(other) < value_of(summary); };
    return runs.size() > 1 && std::isfinite(value_of(summary)) &&
           std::ranges::none_of(summaries, less);
  };
  for (size_t i = 0; i < runs.size(); ++i) {
    const RunSummary& s = summaries[i];
    const auto best = [](const RunSummary& r) { return r.best_val_loss; };
    const auto speed = [](const RunSummary& r) { return -r.tokens_per_s; };
    const auto memory = [](const RunSummary& r) { return static_cast<double>(r.mem_bytes); };
    out += "<tr>" + cell(key(i) + html_text(runs[i].name)) + "<td class=\"name\">" +
           html_text(runs[i].recipe) + "</td>" + cell(fmt::to_string(s.n_steps)) +
           cell(loss_text(s.train_loss)) + cell(loss_text(s.val_loss)) +
           cell(std::isfinite(s.best_val_loss)
                    ? fmt::format("{} ({})", loss_text(s.best_val_loss), s.best_val_step)
                    : loss_text(s.best_val_loss),
                is_best(best, s)) +
           cell(short_number(s.tokens_per_s), is_best(speed, s)) +
           cell(bytes_text(static_cast<double>(s.mem_bytes)), is_best(memory, s)) +
           cell(runs[i].state_bytes ? bytes_text(static_cast<double>(*runs[i].state_bytes))
                                    : "<span class=\"none\">no checkpoint</span>") +
           cell(fmt::to_string(s.n_skipped)) + cell(fmt::to_string(runs[i].n_spikes)) + "</tr>\n";
  }
  return out + "</table></div>\n";
}

// The tables of `octet eval`, of all runs.
std::string evaluations(const std::vector<RunData>& runs) {
  std::vector<OrderedJson> rows;
  std::vector<size_t> owners;
  for (size_t i = 0; i < runs.size(); ++i) {
    for (const OrderedJson& row : runs[i].evaluations) {
      rows.push_back(row);
      owners.push_back(i);
    }
  }
  if (rows.empty()) return "";
  const Table table = evaluation_table(rows);
  std::string out = "<h2>Evaluations</h2>\n<div class=\"card scroll\"><table>\n<tr><th>run</th>";
  for (const std::string& column : table.columns) out += "<th>" + html_text(column) + "</th>";
  out += "</tr>\n";
  for (size_t i = 0; i < rows.size(); ++i) {
    out += "<tr>" + cell(key(owners[i]) + html_text(runs[owners[i]].name));
    for (const std::string& text : table.rows[i]) out += cell(html_text(text));
    out += "</tr>\n";
  }
  return out + "</table></div>\n";
}

std::string differences(const std::vector<RunData>& runs) {
  if (runs.size() < 2) return "";
  std::string out = "<h2>Where the configurations differ</h2>\n";
  const std::vector<ConfigDifference> lines = config_differences(runs);
  if (lines.empty()) return out + "<p class=\"none\">Nowhere.</p>\n";
  out += "<div class=\"card scroll\"><table class=\"words\">\n<tr><th>key</th>";
  for (size_t i = 0; i < runs.size(); ++i)
    out += fmt::format("<th>{}{}</th>", key(i), html_text(runs[i].name));
  out += "</tr>\n";
  for (const ConfigDifference& line : lines) {
    out += fmt::format("<tr><td><code>{}</code></td>", html_text(line.key));
    for (const std::string& value : line.values)
      out += fmt::format("<td><code>{}</code></td>", html_text(value));
    out += "</tr>\n";
  }
  return out + "</table></div>\n";
}

// Where telemetry sampled edges.
std::string heat_maps(const std::vector<RunData>& runs) {
  std::string out;
  for (size_t i = 0; i < runs.size(); ++i) {
    const std::string svg = heat_map(runs[i].edges);
    if (svg.empty()) continue;
    out += fmt::format(
        "<figure class=\"card\"><figcaption>{}{}<span>the worst edge of each layer and sampled "
        "step: "
        "red where it left its format's window, the darker the farther; blue what was lost "
        "inside</span></figcaption>\n{}</figure>\n",
        key(i), html_text(runs[i].name), svg);
  }
  return out.empty()
             ? out
             : "<h2>Edges outside their window</h2>\n<div class=\"charts\">\n" + out + "</div>\n";
}

std::string lead(const std::vector<RunData>& runs) {
  int64_t n_steps = 0;
  for (const RunData& run : runs) n_steps += static_cast<int64_t>(run.steps.size());
  return fmt::format(
      "{} run{}, {} steps in all. A shaded band reaches from the least to the "
      "largest value of the steps that share a point; a mark at the top stands for a "
      "value that is not finite. Drag to zoom, double-click to see all again, click a run's name "
      "to hide it.",
      runs.size(), runs.size() == 1 ? "" : "s", n_steps);
}

std::string head(size_t n_runs) {
  std::string out =
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
      "'unsafe-inline'; script-src 'unsafe-inline'\">\n"
      "<title>Octet report</title>\n<style>\n";
  out += kDygraphsStyle;
  out += kReportStyle + run_styles(n_runs) + "</style>\n";
  return out + "<noscript><style>.curves, .legend { display: none; }</style></noscript>\n</head>\n";
}

// What the page's own script draws, the library that it draws with, and the library's licence.
std::string scripts(const std::vector<RunData>& runs, const std::vector<ReportChart>& charts) {
  OrderedJson data = {{"runs", OrderedJson::array()}, {"charts", OrderedJson::array()}};
  for (const RunData& run : runs) data["runs"].push_back(run.name);
  for (const ReportChart& chart : charts) data["charts"].push_back(chart.json);
  std::string out = "<script type=\"application/json\" id=\"data\">" + script_json(data);
  out += "</script>\n<script>\n/*!\n";
  for (const std::string_view text : {kDygraphsLicence, std::string_view("*/\n"), kDygraphsScript,
                                      std::string_view("\n</script>\n<script>\n"), kReportScript})
    out += text;
  return out + "</script>\n";
}

}  // namespace

std::string report_page(const std::vector<RunData>& runs) {
  const std::vector<ReportChart> charts = report_charts(runs);
  std::string out = head(runs.size()) + "<body>\n";
  out += "<h1>Octet report</h1>\n<p class=\"lead\">" + lead(runs) + "</p>\n";
  out += "<noscript><p>The curves are drawn by JavaScript, which is off here.</p></noscript>\n";
  out += legend(runs) + "<div class=\"charts curves\">\n";
  for (size_t i = 0; i < charts.size(); ++i) out += chart(charts[i], i);
  out += "</div>\n" + results(runs) + heat_maps(runs) + evaluations(runs) + differences(runs);
  return out + scripts(runs, charts) + "</body>\n</html>\n";
}

}  // namespace octet
