// Texts and pairs of texts with what is said of them, from JSON lines and tab-separated tables.
//
//   .jsonl, .ndjson, .json   an object a text: lines, a list, or one after the other
//   .tsv                     a line of names, then a line a text; fields between tabs, no quoting
// Of a source and what it becomes also {"translation": {"de": T, "en": T}}, Hugging Face's form,
// whose languages are names as others. All may be packed (.gz, .bz2, .xz, .zst).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/files.h"
#include "base/log.h"

namespace octet {

// By which names a file has them. "auto": the first ones of those that public data sets use, a pair
// where there is one.
struct TextFields {
  std::string text = "auto";
  std::string pair =
      "auto";  // the second text; "none", and "auto" beside a named text: there is none
  std::string label = "auto";
  // Negatives of pairs: texts that do not mean the same. "auto" alone: those of text_negatives().
  std::vector<std::string> negatives = {"auto"};
  // Labels of the labelled pairs that mean the same, as they are written or as numbers; of a file
  // with a column of labels and none of these, `label` must be "none".
  std::vector<std::string> partners = {};
  bool operator==(const TextFields&) const = default;
};

struct TextRecord {
  std::string first = {};
  std::optional<std::string> second = {};
  std::vector<std::string> negatives = {};
  std::string label = {};                // as it is written
  std::vector<std::string> labels = {};  // of ReadLabels::lists, in its place
  std::string place = {};                // "FILE:LINE"
};

// lists: any number of labels, in JSON; what is no list is a single one. partners: of pairs that
// mean the same; a label says which do. none: of a source and what it becomes.
enum class ReadLabels : uint8_t { yes, lists, partners, none };

// Tells of lines that nothing is made of: the first few, then how many there are.
class LeftOut {
 public:
  explicit LeftOut(const Log& log) : log_(log) {}
  const Log& log() const { return log_; }
  void add(const std::string& place, const std::string& why);
  void finish() const {
    if (n_ > 1) log_.warning("[data] {} lines are left out in all", n_);
  }
  int64_t n() const { return n_; }
  const std::string& first() const { return first_; }  // "FILE:LINE: why"

 private:
  const Log& log_;
  int64_t n_ = 0;
  std::string first_;
};

// The columns "negative", "negative_1", "negative_2", ... of the first file, in its order.
std::vector<std::string> text_negatives(const Files& files, const std::vector<std::string>& paths);

// The records of files and folders, in order. A line that is none is left out. A label of GLUE's
// hidden ones, "-1" and "-", is no label, and a record without a text is none. Columns that nothing
// is read of are told. Throws Error{bad_data}, "[data] PATH: ...", where a path is missing or its
// name is another, a file has not the columns or one twice, the text fields are not both named, or
// pairs have labels without `partners`.
std::vector<TextRecord> read_text_records(const Files& files, const std::vector<std::string>& paths,
                                          const TextFields& fields, ReadLabels labels,
                                          LeftOut& left_out);

// The files of paths whose names end so, less .gz and the like; of folders those alone, and
// the others are told. Throws Error{bad_data} where a path is missing, or a file or folder has none
// of these names.
std::vector<std::string> files_named(const Files& files, const std::vector<std::string>& paths,
                                     const std::vector<std::string>& endings, const Log& log);

}  // namespace octet
