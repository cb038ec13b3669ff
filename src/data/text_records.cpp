#include "data/text_records.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/error.h"
#include "base/ordered_json.h"
#include "base/parse_text.h"
#include "data/byte_stream.h"
#include "data/chat_records.h"
#include "data/json_values.h"
#include "data/text_files.h"

namespace octet {
namespace {

constexpr uint64_t kMaxBytes = uint64_t{4} << 30;  // of a file, unpacked
constexpr const char* kAuto = "auto";
constexpr std::array<const char*, 2> kPairs[] = {
    {"sentence1", "sentence2"}, {"premise", "hypothesis"}, {"question1", "question2"},
    {"text1", "text2"},         {"text_a", "text_b"},      {"question", "sentence"},
    {"anchor", "positive"},     {"query", "positive"},     {"#1 String", "#2 String"}};
constexpr const char* kTexts[] = {"text", "sentence"};
constexpr const char* kLabels[] = {"label",        "labels",  "gold_label",
                                   "is_duplicate", "Quality", "score"};

struct Columns {
  std::string first, second, label;  // second, label: "" where there is none
};

// Of a file that has columns of these names.
Columns find_columns(const std::string& path, const std::vector<std::string>& names,
                     const TextFields& fields, ReadLabels labels) {
  const auto has = [&](const std::string& name) {
    return std::ranges::find(names, name) != names.end();
  };
  const auto expect = [&](const char* what, const std::string& name) {
    if (has(name)) return name;
    throw Error(ErrorCode::bad_data, "[data] {}: expected {} '{}', got {}", path, what, name,
                fmt::join(names, ", "));
  };
  Columns columns;
  const bool has_pair = fields.pair != kAuto && fields.pair != "none";
  if (has_pair) columns.second = expect("a second text", fields.pair);
  if (fields.text != kAuto) {
    columns.first = expect("a text", fields.text);
  } else if (has_pair) {
    throw Error(ErrorCode::bad_data,
                "data.fields.text: expected a name beside data.fields.pair, got auto");
  }
  for (const auto& [first, second] : kPairs) {
    if (!columns.first.empty() || fields.pair == "none" || !has(first) || !has(second)) continue;
    columns = {first, second, ""};
  }
  for (const char* name : kTexts) {
    if (columns.first.empty() && has(name)) columns.first = name;
  }
  if (columns.first.empty()) {
    throw Error(ErrorCode::bad_data,
                "[data] {}: expected text, sentence, sentence1 and sentence2 or the like "
                "(data.fields.text, data.fields.pair), got {}",
                path, fmt::join(names, ", "));
  }
  if (labels == ReadLabels::no) return columns;
  if (fields.label != kAuto) columns.label = expect("a label", fields.label);
  for (const char* name : kLabels) {
    if (columns.label.empty() && has(name)) columns.label = name;
  }
  if (!columns.label.empty()) return columns;
  throw Error(ErrorCode::bad_data,
              "[data] {}: expected label, score or the like (data.fields.label), got {}", path,
              fmt::join(names, ", "));
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

bool is_no_label(const std::string& label) {
  return label.empty() || label == "-1" || label == "-";
}

// As a record has one; nothing where it is none.
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
  std::vector<TextRecord> take() { return std::move(records_); }

 private:
  void read_table(const std::string& path) {
    const std::string text = read_text_file(files_, path, kMaxBytes);
    std::string_view rest = text;
    std::vector<std::string> names;
    Columns columns;
    for (int64_t number = 1; !rest.empty(); ++number) {
      std::string_view line = take_line(rest);
      if (line.empty()) continue;
      if (names.empty()) {
        constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
        if (line.starts_with(kByteOrderMark)) line.remove_prefix(kByteOrderMark.size());
        names = split_at_tabs(line);
        columns = find_columns(path, names, fields_, labels_);
        continue;
      }
      add_line(fmt::format("{}:{}", path, number), line, names, columns);
    }
    if (names.empty())
      throw Error(ErrorCode::bad_data, "[data] {}: expected a line of names, got none", path);
  }

  void add_line(const std::string& place, std::string_view line,
                const std::vector<std::string>& names, const Columns& columns) {
    if (!is_readable_text(line)) return left_out_.add(place, "expected UTF-8 text");
    std::vector<std::string> parts = split_at_tabs(line);
    if (parts.size() != names.size()) {
      return left_out_.add(place,
                           fmt::format("expected {} fields, got {}", names.size(), parts.size()));
    }
    const auto part = [&](const std::string& name) {
      return std::move(parts[static_cast<size_t>(std::ranges::find(names, name) - names.begin())]);
    };
    TextRecord record{.first = part(columns.first), .place = place};
    if (!columns.second.empty()) record.second = part(columns.second);
    if (!columns.label.empty()) record.label = part(columns.label);
    add(std::move(record));
  }

  void read_json(const std::string& path) {
    JsonValues values(files_, path, {.max_bytes = kMaxBytes});
    std::optional<Columns> columns;
    while (const std::optional<JsonText> value = values.next()) {
      const std::string place = fmt::format("{}:{}", path, value->line);
      OrderedJson json;
      try {
        json = parse_ordered_json(value->text, "");
      } catch (const Error& error) {
        left_out_.add(place, "expected JSON, got " + json_detail(error));
        continue;
      }
      if (!json.is_object()) {
        left_out_.add(place, "expected an object, got " + std::string(json.type_name()));
        continue;
      }
      if (!columns) {
        std::vector<std::string> names;
        for (const auto& [key, unused] : json.items()) names.push_back(key);
        columns = find_columns(path, names, fields_, labels_);
      }
      add_object(place, json, *columns);
    }
  }

  void add_object(const std::string& place, const OrderedJson& json, const Columns& columns) {
    TextRecord record{.place = place};
    const auto text_of = [&](const std::string& key, std::string& text) {
      const auto at = json.find(key);
      if (at == json.end() || !at->is_string()) {
        left_out_.add(place, fmt::format("expected a text '{}', got {}", key,
                                         at == json.end() ? "none" : at->type_name()));
        return false;
      }
      text = at->get<std::string>();
      return true;
    };
    if (!text_of(columns.first, record.first)) return;
    if (!columns.second.empty() && !text_of(columns.second, record.second.emplace())) return;
    if (!columns.label.empty()) {
      const auto at = json.find(columns.label);
      const bool is_list = at != json.end() && at->is_array();
      if (is_list && labels_ == ReadLabels::yes)
        return left_out_.add(place, "expected a label, got a list (model.head: multi_label)");
      if (at != json.end()) record.label = is_list ? at->dump() : label_text(*at).value_or("");
    }
    add(std::move(record));
  }

  void add(TextRecord record) {
    if (labels_ != ReadLabels::no && is_no_label(record.label))
      return left_out_.add(record.place, "expected a label, got none");
    if (labels_ == ReadLabels::lists) {
      auto labels = labels_of(record.label);
      if (!labels)
        return left_out_.add(record.place, "expected a list of labels, got " + record.label);
      record.labels = *std::move(labels);
    }
    records_.push_back(std::move(record));
  }

  const Files& files_;
  const TextFields& fields_;
  ReadLabels labels_;
  LeftOut& left_out_;
  std::vector<TextRecord> records_;
};

}  // namespace

void LeftOut::add(const std::string& place, const std::string& why) {
  constexpr int64_t kMaxLines = 5;
  if (n_ == 0) first_ = fmt::format("{}: {}", place, why);
  if (++n_ <= kMaxLines) log_.warning("[data] {} is left out: {}", place, why);
}

std::vector<std::string> files_named(const Files& files, const std::vector<std::string>& paths,
                                     const std::vector<std::string>& endings) {
  const auto is_named = [&](const std::string& path) {
    const std::string name = unpacked_name(path);
    return std::ranges::any_of(endings,
                               [&](const std::string& ending) { return name.ends_with(ending); });
  };
  std::vector<std::string> found;
  for (const std::string& path : paths) {
    const size_t n_before = found.size();
    if (files.exists(path) && files.is_directory(path)) {
      for (const std::string& one : files_under(files, path).paths) {
        if (is_named(one)) found.push_back(one);
      }
    } else if (files.exists(path) && is_named(path)) {
      found.push_back(path);
    }
    if (found.size() > n_before) continue;
    throw Error(ErrorCode::bad_data, "[data] '{}': expected {}, or a folder of such, got {}", path,
                fmt::join(endings, ", "), files.exists(path) ? "other data" : "no such file");
  }
  return found;
}

std::vector<TextRecord> read_text_records(const Files& files, const std::vector<std::string>& paths,
                                          const TextFields& fields, ReadLabels labels,
                                          LeftOut& left_out) {
  Reader reader(files, fields, labels, left_out);
  for (const std::string& path : files_named(files, paths, {".jsonl", ".ndjson", ".json", ".tsv"}))
    reader.read(path);
  return reader.take();
}

}  // namespace octet
