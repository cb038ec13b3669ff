#include "data/text_records.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <set>
#include <span>
#include <utility>

#include "base/error.h"
#include "base/few.h"
#include "base/input_limits.h"
#include "base/json_reader.h"
#include "base/ordered_json.h"
#include "base/parse_text.h"
#include "data/byte_stream.h"
#include "data/chat_records.h"
#include "data/json_values.h"
#include "data/text_columns.h"
#include "data/text_files.h"

namespace octet {
namespace {

std::vector<std::string> endings() {
  return {".jsonl", ".ndjson", ".json", ".tsv"};
}

std::vector<std::string> split_at_tabs(std::string_view line) {
  std::vector<std::string> parts;
  while (true) {
    const size_t end = line.find('\t');
    parts.emplace_back(line.substr(0, end));
    if (end == line.npos) return parts;
    line.remove_prefix(end + 1);
  }
}

// Names of columns in a table's first line.
std::vector<std::string> names_of(std::string_view line) {
  return split_at_tabs(without_byte_order_mark(line));
}

// A name that stands twice does not say which of its columns is meant.
void expect_each_once(const std::string& path, const std::vector<std::string>& names) {
  std::set<std::string> seen;
  for (const std::string& name : names) {
    if (seen.insert(name).second) continue;
    throw Error(ErrorCode::bad_data,
                "[data] {}: expected columns of different names, got '{}' twice", path, name);
  }
}

// Hugging Face's form of a translation, {"translation": {"de": T, "en": T}}, as an object with the
// languages as keys; one that has such keys already is left as it is.
void spread_translation(OrderedJson& json) {
  const auto found = json.find("translation");
  if (found == json.end() || !found->is_object()) return;
  const OrderedJson texts = *found;
  for (const auto& [language, text] : texts.items())
    if (json.contains(language)) return;
  json.erase("translation");
  for (const auto& [language, text] : texts.items()) json[language] = text;
}

bool is_no_label(const std::string& label) {
  return label.empty() || label == "-1" || label == "-";
}

// The label of a record; nothing where it is none.
std::optional<std::string> label_text(const OrderedJson& json) {
  if (json.is_boolean()) return json.get<bool>() ? "1" : "0";
  if (json.is_string()) return json.get<std::string>();
  return json.is_number() ? std::optional(json.dump()) : std::nullopt;
}

// The labels of a list that is written as JSON, or of what is no list.
std::optional<std::vector<std::string>> labels_of(const std::string& label) {
  if (!label.starts_with('[')) return std::vector<std::string>{label};
  std::vector<std::string> labels;
  try {
    for (const OrderedJson& one : parse_ordered_json(label, "")) {
      const std::optional<std::string> text = label_text(one);
      if (!text) return std::nullopt;
      labels.push_back(*text);
    }
  } catch (const Error&) {
    return std::nullopt;
  }
  return labels;
}

class Reader {
 public:
  Reader(const Files& files, const TextFields& fields, ReadLabels labels, LeftOut& left_out)
      : files_(files), fields_(fields), labels_(labels), left_out_(left_out) {}

  void read(const std::string& path) {
    unpacked_name(path).ends_with(".tsv") ? read_table(path) : read_json(path);
  }
  std::vector<TextRecord> take() {
    if (n_others_ > 0) {
      left_out_.log().info("[data] {} of {} pairs are left out: their label is not {}", n_others_,
                           n_pairs_, fmt::join(fields_.partners, ", "));
    }
    return std::move(records_);
  }

 private:
  void read_table(const std::string& path) {
    const std::string text = read_text_file(files_, path, input_limits().max_unpacked_bytes);
    std::string_view rest = text;
    std::vector<std::string> names;
    TextColumns columns;
    for (int64_t number = 1; !rest.empty(); ++number) {
      const std::string_view line = take_line(rest);
      if (line.empty()) continue;
      if (names.empty()) {
        names = names_of(line);
        expect_each_once(path, names);
        columns = find_columns(path, names, fields_, labels_);
        continue;
      }
      add_line(fmt::format("{}:{}", path, number), line, names, columns);
    }
    if (names.empty())
      throw Error(ErrorCode::bad_data, "[data] {}: expected a line of names, got none", path);
    tell_unused(path, names, columns);
  }

  void add_line(const std::string& place, std::string_view line,
                const std::vector<std::string>& names, const TextColumns& columns) {
    if (!is_readable_text(line)) return left_out_.add(place, "expected UTF-8 text");
    const std::vector<std::string> parts = split_at_tabs(line);
    if (parts.size() != names.size()) {
      return left_out_.add(place,
                           fmt::format("expected {} fields, got {}", names.size(), parts.size()));
    }
    // A copy: two fields may name one column.
    const auto part = [&](const std::string& name) {
      return parts[static_cast<size_t>(std::ranges::find(names, name) - names.begin())];
    };
    TextRecord record{.first = part(columns.first), .place = place};
    if (!columns.second.empty()) record.second = part(columns.second);
    for (const std::string& name : columns.negatives) record.negatives.push_back(part(name));
    if (!columns.label.empty()) record.label = part(columns.label);
    add(std::move(record));
  }

  void read_json(const std::string& path) {
    JsonValues values(files_, path);
    std::optional<TextColumns> columns;
    std::vector<std::string> names;  // of all records, in order
    std::set<std::string> known;
    while (const std::optional<JsonText> value = values.next()) {
      const std::string place = fmt::format("{}:{}", path, value->line);
      OrderedJson json;
      try {
        json = parse_ordered_json(value->text, "");
      } catch (const Error& error) {
        left_out_.add(place, json_detail(error));
        continue;
      }
      if (!json.is_object()) {
        left_out_.add(place, "expected an object, got " + std::string(json.type_name()));
        continue;
      }
      if (labels_ == ReadLabels::none) spread_translation(json);
      const size_t n_known = names.size();
      for (const auto& [key, unused] : json.items()) {
        if (known.insert(key).second) names.push_back(key);
      }
      if (!columns) columns = find_columns(path, names, fields_, labels_);
      if (labels_ == ReadLabels::partners && fields_.label == kAutoColumn &&
          columns->label.empty()) {
        const auto label = std::find_if(names.begin() + static_cast<std::ptrdiff_t>(n_known),
                                        names.end(), is_label_column);
        if (label != names.end()) fail_labelled_pairs(place, *label);
      }
      add_object(place, json, *columns);
    }
    if (columns) tell_unused(path, names, *columns);
  }

  // Once of files that have the same.
  void tell_unused(const std::string& path, const std::vector<std::string>& names,
                   const TextColumns& columns) {
    std::vector<std::string> unused;
    std::ranges::copy_if(names, std::back_inserter(unused),
                         [&](const std::string& name) { return !columns.has(name); });
    if (unused.empty() || unused == unused_) return;
    left_out_.log().info("[data] {}: nothing is read of {}", path, first_few(unused));
    unused_ = std::move(unused);
  }

  void add_object(const std::string& place, const OrderedJson& json, const TextColumns& columns) {
    TextRecord record{.place = place};
    const auto text_of = [&](const std::string& key, std::string& text) {
      const auto at = json.find(key);
      if (at == json.end() || !at->is_string()) {
        left_out_.add(place, fmt::format("expected a text '{}', got {}", key,
                                         at == json.end()  ? "none"
                                         : at->is_binary() ? what_is_unread(*at)
                                                           : at->type_name()));
        return false;
      }
      text = at->get<std::string>();
      return true;
    };
    if (!text_of(columns.first, record.first)) return;
    if (!columns.second.empty() && !text_of(columns.second, record.second.emplace())) return;
    for (const std::string& name : columns.negatives) {
      if (!text_of(name, record.negatives.emplace_back())) return;
    }
    if (!columns.label.empty()) {
      const auto at = json.find(columns.label);
      const bool is_list = at != json.end() && at->is_array();
      if (is_list && labels_ != ReadLabels::lists)
        return left_out_.add(place, "expected a label, got a list (model.head: multi_label)");
      if (at != json.end()) record.label = is_list ? at->dump() : label_text(*at).value_or("");
    }
    add(std::move(record));
  }

  // Of two texts that are labelled together one may be empty; of a source and a target their reader
  // tells.
  bool lacks_text(const TextRecord& record) const {
    if (labels_ == ReadLabels::none && record.second) return false;
    const bool are_apart = labels_ == ReadLabels::partners || labels_ == ReadLabels::none;
    const bool lacks_second = !record.second || stripped(*record.second).empty();
    if (stripped(record.first).empty()) return are_apart || lacks_second;
    return are_apart && record.second && lacks_second;
  }

  void add(TextRecord record) {
    if (lacks_text(record)) return left_out_.add(record.place, "expected a text, got an empty one");
    if (labels_ == ReadLabels::none) return records_.push_back(std::move(record));
    if (labels_ == ReadLabels::partners) {
      n_pairs_ += 1;
      if (!fields_.partners.empty() && !is_partner(record.label)) {
        n_others_ += 1;
        return;
      }
    } else if (is_no_label(record.label)) {
      const std::string hidden = fmt::format("'{}', which is none", record.label);
      return left_out_.add(record.place,
                           "expected a label, got " + (record.label.empty() ? "none" : hidden));
    }
    if (labels_ == ReadLabels::lists) {
      auto labels = labels_of(record.label);
      if (!labels)
        return left_out_.add(record.place, "expected a list of labels, got " + record.label);
      record.labels = *std::move(labels);
    }
    records_.push_back(std::move(record));
  }

  bool is_partner(const std::string& label) const {
    return std::ranges::any_of(fields_.partners, [&](const std::string& partner) {
      const auto number = parse_number<double>(partner);
      return partner == label || (number && number == parse_number<double>(label));
    });
  }

  const Files& files_;
  const TextFields& fields_;
  ReadLabels labels_;
  LeftOut& left_out_;
  std::vector<TextRecord> records_;
  int64_t n_pairs_ = 0, n_others_ = 0;
  std::vector<std::string> unused_;  // of the last file
};

}  // namespace

void LeftOut::add(const std::string& place, const std::string& why) {
  if (n_ == 0) first_ = fmt::format("{}: {}", place, why);
  if (++n_ <= kMaxWarnings) log_.warning("[data] {} is left out: {}", place, why);
}

std::vector<std::string> files_named(const Files& files, const std::vector<std::string>& paths,
                                     const std::vector<std::string>& endings, const Log& log) {
  const auto is_named = [&](const std::string& path) {
    const std::string name = unpacked_name(path);
    return std::ranges::any_of(endings,
                               [&](const std::string& ending) { return name.ends_with(ending); });
  };
  std::vector<std::string> found;
  for (const std::string& path : paths) {
    const size_t n_before = found.size();
    if (files.exists(path) && files.is_directory(path)) {
      const FolderFiles inner = files_under(files, path);
      std::vector<std::string> others;
      for (const std::string& one : inner.paths) (is_named(one) ? found : others).push_back(one);
      tell_unread(path, inner,
                  {{.n = std::ssize(others),
                    .why = fmt::format("are not named {}", fmt::join(endings, ", ")),
                    .names = others}},
                  log);
    } else if (files.exists(path) && is_named(path)) {
      found.push_back(path);
    }
    if (found.size() > n_before) continue;
    throw Error(ErrorCode::bad_data, "[data] '{}': expected {}, or a folder of such, got {}", path,
                fmt::join(endings, ", "), files.exists(path) ? "other data" : "no such file");
  }
  return found;
}

std::vector<std::string> text_negatives(const Files& files, const std::vector<std::string>& paths) {
  const std::string path = files_named(files, paths, endings(), Log()).front();
  std::vector<std::string> names;
  if (unpacked_name(path).ends_with(".tsv")) {
    const std::string text = read_text_file(files, path, input_limits().max_unpacked_bytes);
    std::string_view rest = text;
    while (names.empty() && !rest.empty()) {
      const std::string_view line = take_line(rest);
      if (!line.empty()) names = names_of(line);
    }
  } else {
    JsonValues values(files, path);
    while (const std::optional<JsonText> value = values.next()) {
      try {
        const OrderedJson json = parse_ordered_json(value->text, "");
        if (!json.is_object()) continue;
        for (const auto& [key, unused] : json.items()) names.push_back(key);
        break;
      } catch (const Error&) {  // whoever reads it tells
      }
    }
  }
  std::erase_if(names, [](const std::string& name) { return !is_negative_column(name); });
  return names;
}

std::vector<TextRecord> read_text_records(const Files& files, const std::vector<std::string>& paths,
                                          const TextFields& fields, ReadLabels labels,
                                          LeftOut& left_out) {
  Reader reader(files, fields, labels, left_out);
  for (const std::string& path : files_named(files, paths, endings(), left_out.log()))
    reader.read(path);
  return reader.take();
}

}  // namespace octet
