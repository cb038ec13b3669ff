#include "data/text_columns.h"

#include <fmt/ranges.h>

#include <array>
#include <span>

#include "base/error.h"
#include "base/parse_text.h"

namespace octet {
namespace {

constexpr std::array<const char*, 2> kPairs[] = {
    {"sentence1", "sentence2"}, {"premise", "hypothesis"}, {"question1", "question2"},
    {"text1", "text2"},         {"text_a", "text_b"},      {"question", "sentence"},
    {"anchor", "positive"},     {"query", "positive"},     {"#1 String", "#2 String"}};
constexpr std::array<const char*, 2> kTranslations[] = {
    {"source", "target"}, {"src", "tgt"}, {"input", "output"}, {"document", "summary"}};
constexpr const char* kTexts[] = {"text", "sentence"};
constexpr const char* kLabels[] = {"label",        "labels",  "gold_label",
                                   "is_duplicate", "Quality", "score"};

// Looks for names among those of a file.
class ColumnFinder {
 public:
  ColumnFinder(const std::string& path, const std::vector<std::string>& names)
      : path_(path), names_(names) {}

  TextColumns texts(const TextFields& fields, ReadLabels labels) const {
    TextColumns columns;
    const bool has_pair = fields.pair != kAutoColumn && fields.pair != kNoColumn;
    if (has_pair) columns.second = expect("a second text", fields.pair);
    if (fields.text != kAutoColumn) {
      columns.first = expect("a text", fields.text);
    } else if (has_pair) {
      throw Error(ErrorCode::bad_data,
                  "data.fields.text: expected a name beside data.fields.pair, got auto");
    }
    const bool are_translated = labels == ReadLabels::none;
    for (const auto& [first, second] :
         are_translated ? std::span<const std::array<const char*, 2>>(kTranslations) : kPairs) {
      if (!columns.first.empty() || fields.pair == kNoColumn || !has(first) || !has(second))
        continue;
      columns.first = first, columns.second = second;
    }
    if (are_translated) {
      if (!columns.second.empty()) return columns;
      throw Error(
          ErrorCode::bad_data,
          "[data] {}: expected source and target, src and tgt or the like (data.fields.text, "
          "data.fields.pair), got {}",
          path_, fmt::join(names_, ", "));
    }
    for (const char* name : kTexts) {
      if (columns.first.empty() && has(name)) columns.first = name;
    }
    if (columns.first.empty()) {
      throw Error(ErrorCode::bad_data,
                  "[data] {}: expected text, sentence, sentence1 and sentence2 or the like "
                  "(data.fields.text, data.fields.pair), got {}",
                  path_, fmt::join(names_, ", "));
    }
    return columns;
  }

  void add_label(const TextFields& fields, ReadLabels labels, TextColumns& columns) const {
    const bool are_pairs = labels == ReadLabels::partners;
    if (are_pairs && fields.negatives != std::vector<std::string>{kAutoColumn}) {
      for (const std::string& name : fields.negatives)
        columns.negatives.push_back(expect("a negative", name));
    }
    if (are_pairs && fields.label == kNoColumn) {
      if (fields.partners.empty()) return;
      throw Error(ErrorCode::bad_data,
                  "data.fields.partners: expected none beside data.fields.label: none, got {}",
                  fmt::join(fields.partners, ", "));
    }
    if (fields.label != kAutoColumn) columns.label = expect("a label", fields.label);
    for (const char* name : kLabels) {
      if (columns.label.empty() && has(name)) columns.label = name;
    }
    if (are_pairs && !columns.label.empty() && fields.partners.empty())
      fail_labelled_pairs(path_, columns.label);
    if (!columns.label.empty() || (are_pairs && fields.partners.empty())) return;
    throw Error(ErrorCode::bad_data,
                "[data] {}: expected label, score or the like (data.fields.label), got {}", path_,
                fmt::join(names_, ", "));
  }

 private:
  bool has(const std::string& name) const {
    return std::ranges::find(names_, name) != names_.end();
  }
  std::string expect(const char* what, const std::string& name) const {
    if (has(name)) return name;
    throw Error(ErrorCode::bad_data, "[data] {}: expected {} '{}', got {}", path_, what, name,
                fmt::join(names_, ", "));
  }

  const std::string& path_;
  const std::vector<std::string>& names_;
};

}  // namespace

bool is_negative_column(const std::string& name) {
  constexpr std::string_view kNegative = "negative";
  if (name == kNegative) return true;
  const std::string number = name.starts_with(kNegative) ? name.substr(kNegative.size()) : "";
  return number.starts_with('_') && parse_number<int32_t>(number.substr(1)).has_value();
}

bool is_label_column(const std::string& name) {
  return std::ranges::find(kLabels, name) != std::end(kLabels);
}

void fail_labelled_pairs(const std::string& path, const std::string& name) {
  throw Error(ErrorCode::bad_data,
              "[data] {}: '{}' may say which pairs mean the same: expected data.fields.partners, "
              "the labels of those that do ([1]), or data.fields.label: none, of pairs that all do",
              path, name);
}

TextColumns find_columns(const std::string& path, const std::vector<std::string>& names,
                         const TextFields& fields, ReadLabels labels) {
  const ColumnFinder finder(path, names);
  TextColumns columns = finder.texts(fields, labels);
  if (labels != ReadLabels::none) finder.add_label(fields, labels, columns);
  return columns;
}

}  // namespace octet
