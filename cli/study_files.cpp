#include "cli/study_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <set>

#include "base/error.h"
#include "base/ordered_json.h"
#include "base/output_folder.h"
#include "cli/csv.h"
#include "cli/page.h"
#include "cli/study_svg.h"

namespace octet {
namespace {

constexpr const char *kOption = "[study] --out", *kStudy = "study.json", *kFiles = "files";

using Strings = std::vector<std::string>;

std::string csv_text(const Sheet& sheet) {
  std::string out = csv_row(sheet.columns);
  for (const Strings& row : sheet.rows) out += csv_row(row);
  return out;
}

std::string short_cell(const std::string& cell) {
  if (cell.find_first_of(".e") == cell.npos) return cell;
  const char* end = cell.data() + cell.size();
  double value = 0;
  const auto [rest, error] = std::from_chars(cell.data(), end, value);
  const bool is_short =
      std::ranges::count_if(cell, [](char c) { return '0' <= c && c <= '9'; }) <= 4;
  return error != std::errc() || rest != end || is_short ? cell : fmt::format("{:.4g}", value);
}

// Figure as cli/page.js draws it; what is not finite becomes null.
OrderedJson figure_json(const Figure& figure) {
  OrderedJson curves = OrderedJson::array();
  for (const Series& series : figure.series)
    curves.push_back({{"name", series.name}, {"x", series.x}, {"y", series.y}});
  return {{"file", figure.file},       {"title", figure.title},
          {"x_title", figure.x_title}, {"y_title", figure.y_title},
          {"x_names", figure.x_names}, {"log", figure.scale == FigureScale::logarithmic},
          {"dots", figure.has_dots},   {"zero", figure.from_zero},
          {"curves", curves}};
}

// Files of an earlier study of the same sort: a folder holds one.
// A study that was written before it listed its files is known by its title; then all names of its
// kinds may be of it.
std::set<std::string> written_files(const Files& files, const std::string& folder,
                                    const Study& study) {
  const std::string path = join_path(folder, kStudy);
  const EntryKind kind = files.entry_kind(path);
  if (kind == EntryKind::none) return {};
  if (kind != EntryKind::file) throw_not_replaced(kOption, path);
  std::set<std::string> names;
  const OrderedJson json = OrderedJson::parse(files.read_text(path), nullptr, false);
  if (json.is_object() && json.contains(kFiles) && json[kFiles].is_array()) {
    for (const OrderedJson& name : json[kFiles]) {
      if (name.is_string()) names.insert(name.get<std::string>());
    }
    if (json.contains("title") && json["title"] != study.title) throw_not_replaced(kOption, path);
    return names;
  }
  const bool is_older = json.is_object() && json.contains("figures") && json.contains("table") &&
                        json.value("title", OrderedJson()) == study.title;
  if (!is_older) throw_not_replaced(kOption, path);
  for (const DirectoryEntry& entry : files.list(folder)) {
    if (entry.name.ends_with(".csv") || entry.name.ends_with(".svg")) names.insert(entry.name);
  }
  return names;
}

// Parts of a study that the page shows. One that was written before study.json held curves has
// figures beside it: names, no paths.
OrderedJson read_study(const Files& files, const std::string& folder) {
  const std::string path = join_path(folder, kStudy);
  if (!files.exists(path)) {
    throw Error(ErrorCode::bad_data, "[study] '{}': expected a study's folder (study.json)",
                folder);
  }
  OrderedJson study = parse_ordered_json(files.read_text(path), path);
  try {
    for (OrderedJson& figure : study.at("figures")) {
      const auto name = figure.at("file").get<std::string>();
      if (figure.contains("curves")) continue;
      if (name.empty() || name.find('/') != std::string::npos) {
        throw Error(ErrorCode::bad_data, "[study] {}: expected a figure's name, got '{}'", folder,
                    name);
      }
      figure["svg"] = files.read_text(join_path(folder, name + ".svg"));
    }
    const OrderedJson& table = study.at("table");
    return {{"title", study.at("title").get<std::string>()},
            {"figures", study.at("figures")},
            {"columns", table.at("columns").get<Strings>()},
            {"rows", table.at("rows").get<std::vector<Strings>>()}};
  } catch (const OrderedJson::exception&) {
    throw Error(ErrorCode::bad_data, "[study] {}: expected what a study writes", path);
  }
}

}  // namespace

Table short_table(const Strings& columns, const std::vector<Strings>& rows) {
  Table table{columns, rows};
  for (Strings& row : table.rows)
    for (std::string& cell : row) cell = short_cell(cell);
  return table;
}

void write_study(Files& files, const Study& study, const std::string& folder) {
  check_output_folder(files, kOption, folder);
  std::map<std::string, std::string> texts;  // by name
  texts[study.table.file + ".csv"] = csv_text(study.table);
  for (const Sheet& sheet : study.sheets) texts[sheet.file + ".csv"] = csv_text(sheet);
  OrderedJson json = {{"title", study.title},
                      {"table", {{"columns", study.table.columns}, {"rows", study.table.rows}}},
                      {"figures", OrderedJson::array()}};
  for (const Figure& figure : study.figures) {
    texts.try_emplace(figure.file + ".csv", csv_text(sheet_of(figure)));
    texts[figure.file + ".svg"] = figure_svg(figure);
    json["figures"].push_back(figure_json(figure));
  }
  std::set<std::string> own = written_files(files, folder, study);
  for (const auto& [name, text] : texts) {
    const EntryKind kind = files.entry_kind(join_path(folder, name));
    if (kind != EntryKind::none && (kind != EntryKind::file || !own.contains(name)))
      throw_not_replaced(kOption, join_path(folder, name));
  }
  files.create_directories(folder);
  for (const auto& [name, text] : texts) own.insert(name);
  json[kFiles] = own;
  // First what is ours, so that a study that was killed can be repeated.
  const std::string path = join_path(folder, kStudy);
  write_atomically(files, path, OrderedJson{{kFiles, own}}.dump(1) + "\n");
  for (const auto& [name, text] : texts) write_atomically(files, join_path(folder, name), text);
  write_atomically(files, path,
                   json.dump(1, ' ', false, OrderedJson::error_handler_t::replace) + "\n");
}

void write_study_page(Files& files, const std::vector<std::string>& folders,
                      const std::string& out) {
  check_output_folder(files, kOption, out);
  OrderedJson studies = OrderedJson::array();
  std::vector<PageTable> tables;
  for (const std::string& folder : folders) {
    studies.push_back(read_study(files, folder));
    OrderedJson& study = studies.back();
    Table table = short_table(study["columns"], study["rows"]);
    study["rows"] = table.rows;
    tables.push_back({study["title"], std::move(table)});
  }
  const std::string page = page_text("Octet studies", {{"studies", studies}}, tables);
  const std::string path = join_path(out, "index.html");
  const EntryKind kind = files.entry_kind(path);
  const bool is_own = kind == EntryKind::file &&
                      files.read_text(path).starts_with(page.substr(0, page.find("</title>")));
  if (kind != EntryKind::none && !is_own) throw_not_replaced(kOption, path);
  files.create_directories(out);
  write_atomically(files, path, page);
}

}  // namespace octet
