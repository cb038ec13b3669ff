#include "cli/study_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/ordered_json.h"
#include "base/output_folder.h"
#include "cli/html_text.h"
#include "cli/report_style.h"
#include "cli/study_chart.h"

namespace octet {
namespace {

// Okabe and Ito's, the yellow replaced: it is hard to see on white.
constexpr std::array kColors = {"#0072B2", "#D55E00", "#009E73", "#CC79A7",
                                "#E69F00", "#56B4E9", "#000000", "#8C8C8C"};
constexpr std::array kDashes = {"none", "7 3", "2 3", "9 3 2 3"};
constexpr const char *kStudy = "study.json", *kFiles = "files";
constexpr std::string_view kPageHead =
    "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
    "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
    "<title>Octet studies</title>\n<style>";
constexpr double kHead = 46, kLegendRow = 20, kLegendColumn = 180, kMargin = 14;

std::string dash_of(size_t i) {
  return kDashes[(i + i / kColors.size()) % kDashes.size()];
}

std::string style(size_t n_series) {
  std::string out =
      "<style>text{font-family:system-ui,-apple-system,'Segoe UI',Roboto,sans-serif;fill:#1c2330}"
      ".tick{fill:#475467;font-size:11px}.title{font-size:15px;font-weight:600}"
      ".unit{fill:#475467;font-size:12px}.key{font-size:12px}"
      ".grid{stroke:#e4e7ec}.axis,.notch{stroke:#98a2b3}"
      ".run polyline{fill:none;stroke-width:1.8;stroke-linejoin:round}.run .band{opacity:.15}";
  for (size_t i = 0; i < n_series; ++i) {
    const char* color = kColors[i % kColors.size()];
    out += fmt::format(
        ".run-{0} polyline,.key-{0}{{stroke:{1};stroke-dasharray:{2}}}"
        ".run-{0} circle,.run-{0} path,.run-{0} .band{{fill:{1}}}",
        i, color, dash_of(i));
  }
  return out + "</style>\n";
}

std::string legend(const std::vector<Series>& series, double top) {
  const auto columns = static_cast<size_t>((kChartWidth - kMargin) / kLegendColumn);
  std::string out;
  for (size_t i = 0; i < series.size(); ++i) {
    const double x = kMargin + static_cast<double>(i % columns) * kLegendColumn;
    const double y = top + static_cast<double>(i / columns) * kLegendRow;
    out += fmt::format(
        "<line class=\"key-{0}\" stroke-width=\"2.4\" x1=\"{1}\" x2=\"{2}\" y1=\"{3}\" y2=\"{3}\"/>"
        "<text class=\"key\" x=\"{4}\" y=\"{5}\">{6}</text>\n",
        i, x, x + 26, y, x + 33, y + 4, html_text(series[i].name));
  }
  return out;
}

double legend_height(size_t n_series) {
  const auto columns = static_cast<size_t>((kChartWidth - kMargin) / kLegendColumn);
  return kLegendRow * static_cast<double>((n_series + columns - 1) / columns) + kMargin;
}

std::string csv_cell(const std::string& text) {
  if (text.find_first_of(",\"\n\r") == std::string::npos) return text;
  std::string out = "\"";
  for (const char c : text) out += c == '"' ? "\"\"" : std::string(1, c);
  return out + "\"";
}

std::string csv_line(const std::vector<std::string>& cells) {
  std::string line;
  for (size_t i = 0; i < cells.size(); ++i) line += (i > 0 ? "," : "") + csv_cell(cells[i]);
  return line + "\n";
}

std::string base64(std::string_view bytes) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t word = 0;
    const size_t n = std::min<size_t>(3, bytes.size() - i);
    for (size_t k = 0; k < 3; ++k) {
      word = word << 8 | (k < n ? static_cast<uint8_t>(bytes[i + k]) : 0u);
    }
    for (size_t k = 0; k < 4; ++k) {
      out += k <= n ? kDigits[word >> (18 - 6 * k) & 63u] : '=';
    }
  }
  return out;
}

std::string table_html(const OrderedJson& table) {
  std::string out = "<div class=\"card scroll\"><table>\n<tr>";
  for (const auto& column : table.at("columns")) {
    out += "<th>" + html_text(column.get<std::string>()) + "</th>";
  }
  out += "</tr>\n";
  for (const auto& row : table.at("rows")) {
    out += "<tr>";
    for (const auto& cell : row) out += "<td>" + html_text(cell.get<std::string>()) + "</td>";
    out += "</tr>\n";
  }
  return out + "</table></div>\n";
}

// A study that was written before it listed its files is known by its title; then all names of its
// kinds may be of it.
std::set<std::string> written_files(const Files& files, const std::string& folder,
                                    const std::string& title) {
  const std::string path = join_path(folder, kStudy);
  const EntryKind kind = files.entry_kind(path);
  if (kind == EntryKind::none) return {};
  if (kind != EntryKind::file) throw_not_replaced("[study] --out", path);
  std::set<std::string> names;
  const OrderedJson json = OrderedJson::parse(files.read_text(path), nullptr, false);
  if (json.is_object() && json.contains(kFiles) && json[kFiles].is_array()) {
    for (const OrderedJson& name : json[kFiles]) {
      if (name.is_string()) names.insert(name.get<std::string>());
    }
    return names;
  }
  const bool is_older = json.is_object() && json.contains("figures") && json.contains("table") &&
                        json.value("title", OrderedJson()) == title;
  if (!is_older) throw_not_replaced("[study] --out", path);
  for (const DirectoryEntry& entry : files.list(folder)) {
    if (entry.name.ends_with(".csv") || entry.name.ends_with(".svg")) names.insert(entry.name);
  }
  return names;
}

void check_page(const Files& files, const std::string& path) {
  const EntryKind kind = files.entry_kind(path);
  if (kind == EntryKind::none) return;
  if (kind != EntryKind::file || !files.read_text(path).starts_with(kPageHead))
    throw_not_replaced("[study] --out", path);
}

// A file beside study.json, no path.
std::string figure_html(const Files& files, const std::string& folder, const OrderedJson& figure) {
  const auto name = figure.at("file").get<std::string>();
  if (name.empty() || name.find('/') != std::string::npos) {
    throw Error(ErrorCode::bad_data, "[study] {}: expected a figure's name, got '{}'", folder,
                name);
  }
  const std::string svg = files.read_text(join_path(folder, name + ".svg"));
  return fmt::format(
      "<figure class=\"card\" style=\"background:#fff\"><img style=\"width:100%\" alt=\"{}\" "
      "src=\"data:image/svg+xml;base64,{}\"></figure>\n",
      html_text(figure.at("title").get<std::string>()), base64(svg));
}

}  // namespace

std::string figure_svg(const Figure& figure) {
  const bool is_log = figure.scale == FigureScale::logarithmic;
  const ChartOptions options{.scale = is_log ? YScale::logarithmic : YScale::linear,
                             .has_dots = figure.has_dots,
                             .from_zero = figure.from_zero,
                             .x_title = figure.x_title,
                             .x_names = figure.x_names};
  std::vector<Curve> curves;
  for (const Series& series : figure.series) curves.push_back({series.x, series.y});
  const double chart = chart_height(options), foot = kHead + chart + kMargin;
  const double height = foot + legend_height(figure.series.size());
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" "
      "height=\"{1}\" role=\"img\" aria-label=\"{2} over {3}\">\n",
      kChartWidth, height, html_text(figure.title), html_text(figure.x_title));
  out += style(figure.series.size()) +
         fmt::format("<rect width=\"{}\" height=\"{}\" fill=\"#ffffff\"/>\n", kChartWidth, height);
  out += fmt::format(
      "<text class=\"title\" x=\"{0}\" y=\"22\">{1}</text>"
      "<text class=\"unit\" x=\"{0}\" y=\"41\">{2}{3}</text>\n",
      kMargin, html_text(figure.title), html_text(figure.y_title), is_log ? ", logarithmic" : "");
  out += fmt::format("<g transform=\"translate(0 {})\">\n{}</g>\n", kHead,
                     chart_body(curves, options));
  return out + legend(figure.series, foot) + "</svg>\n";
}

std::string csv_text(const Sheet& sheet) {
  std::string out = csv_line(sheet.columns);
  for (std::vector<std::string> row : sheet.rows) {
    std::ranges::replace(row, std::string("-nan"), std::string("nan"));
    out += csv_line(row);
  }
  return out;
}

void write_study(Files& files, const Study& study, const std::string& folder) {
  const std::string path = join_path(folder, kStudy);
  check_output_folder(files, "[study] --out", folder);
  std::vector<std::pair<std::string, std::string>> texts;  // by name
  texts.emplace_back(study.table.file + ".csv", csv_text(study.table));
  for (const Sheet& sheet : study.sheets) texts.emplace_back(sheet.file + ".csv", csv_text(sheet));
  OrderedJson json = {{"title", study.title},
                      {"table", {{"columns", study.table.columns}, {"rows", study.table.rows}}},
                      {"figures", OrderedJson::array()}};
  for (const Figure& figure : study.figures) {
    const bool has_sheet = figure.file == study.table.file;
    if (!has_sheet) texts.emplace_back(figure.file + ".csv", csv_text(sheet_of(figure)));
    texts.emplace_back(figure.file + ".svg", figure_svg(figure));
    json["figures"].push_back({{"file", figure.file}, {"title", figure.title}});
  }
  std::set<std::string> own = written_files(files, folder, study.title);
  for (const auto& [name, text] : texts) {
    const EntryKind kind = files.entry_kind(join_path(folder, name));
    if (kind == EntryKind::none || (kind == EntryKind::file && own.contains(name))) continue;
    throw_not_replaced("[study] --out", join_path(folder, name));
  }
  files.create_directories(folder);
  for (const auto& [name, text] : texts) own.insert(name);
  json[kFiles] = own;
  // First what is ours, so that a study that was killed can be repeated.
  write_atomically(files, path, OrderedJson{{kFiles, own}}.dump(1) + "\n");
  for (const auto& [name, text] : texts) write_atomically(files, join_path(folder, name), text);
  write_atomically(files, path,
                   json.dump(1, ' ', false, OrderedJson::error_handler_t::replace) + "\n");
}

void write_study_page(Files& files, const std::vector<std::string>& folders,
                      const std::string& out) {
  const std::string path_of_page = join_path(out, "index.html");
  check_output_folder(files, "[study] --out", out);
  check_page(files, path_of_page);
  std::string page = std::string(kPageHead) + std::string(kReportStyle) +
                     "</style>\n</head>\n<body>\n<h1>Octet studies</h1>\n";
  for (const std::string& folder : folders) {
    const std::string path = join_path(folder, kStudy);
    if (!files.exists(path)) {
      throw Error(ErrorCode::bad_data, "[study] '{}': expected a study's folder (study.json)",
                  folder);
    }
    const OrderedJson json = parse_ordered_json(files.read_text(path), path);
    try {
      page += "<h2>" + html_text(json.at("title").get<std::string>()) + "</h2>\n";
      page += "<div class=\"charts\">\n";
      for (const auto& figure : json.at("figures")) page += figure_html(files, folder, figure);
      page += "</div>\n" + table_html(json.at("table"));
    } catch (const OrderedJson::exception&) {
      throw Error(ErrorCode::bad_data, "[study] {}: expected what a study writes", path);
    }
  }
  files.create_directories(out);
  write_atomically(files, path_of_page, page + "</body>\n</html>\n");
}

}  // namespace octet
