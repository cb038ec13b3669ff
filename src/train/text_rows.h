// Texts as encoders train on them: rows with the tokenizer's own tokens around a text.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/files.h"
#include "base/log.h"
#include "config/run_config.h"
#include "data/dataset.h"
#include "data/row_source.h"
#include "data/text_records.h"
#include "data/token_rows.h"
#include "nn/model.h"
#include "text/tokenizer.h"
#include "train/row_data.h"
#include "train/run_inputs.h"

namespace octet {

// The text of a run whose loss hides tokens, as rows of it (data/masked_rows.h). Throws
// Error{invalid_argument} where keys ask for what such rows have not, Error{bad_data} for a
// tokenizer without a mask token.
Dataset hide_tokens(const Dataset& text, const RunConfig& config, const RunInputs& inputs,
                    const Tokenizer& tokenizer);

// Throws Error{invalid_argument} unless documents run on into each other.
void check_boundaries(const RunConfig& config);

// Rows of a tokenizer's tokens as a run reads them: padded, with token types where the model has
// them. Throws Error{bad_data} where it has too few of these, and as check_known() does.
std::shared_ptr<const RowSource> encoded_rows(TokenRows rows, const RunConfig& config,
                                              const RunInputs& inputs, const Tokenizer& tokenizer,
                                              const Log& log);

// Puts what data.fields.negatives: auto stands for in its place: columns of the run's first file
// where a loss takes them, else none.
void settle_negatives(const Files& files, RunConfig& config, const ModelSpec& spec);

// The label of a text, or of two.
enum class TextLabel : uint8_t {
  none,    // two texts that mean the same, and any that do not, a row each: of contrastive
  name,    // a class
  names,   // any number of classes: of multi_label
  number,  // of regression
};
// By what a run reads beside tokens; nothing where it is something else.
std::optional<TextLabel> text_label_of(const RunInputs& inputs);

struct RowUser {
  const Log& log;
  DataUse use = DataUse::training;
};

// Texts and pairs (data/text_records.h) as rows: a pair in one, with its token types, or of `none`
// a row each. Labels are names, numbered by number_classes (row_data.h); where all are numbers, and
// no class of model.path has a number as its name, numbers of classes. Lists of labels may also
// have a number from 0 to 1 for each class, where all of the first call have. What is too long
// loses its end (text/encode_texts.h).
class LabelledTexts {
 public:
  // Throws as run_tokenizer does. All must outlive it.
  LabelledTexts(const Files& files, const RunConfig& config, const ModelSpec& spec,
                const RunInputs& inputs, const RowUser& user);

  // The first call's names hold for all. Throws Error{bad_data} as read_text_records() does, for a
  // label that is no class, or where nothing is left.
  std::shared_ptr<const RowSource> open(const std::vector<std::string>& paths);
  // Names of the classes, by number; empty where labels are numbers.
  const std::vector<std::string>& label_names() const { return names_; }

 private:
  int32_t class_of(const std::string& label, const std::string& place) const;
  void find_names(const std::vector<TextRecord>& records);
  // Targets of all classes.
  std::vector<float> targets_of(const TextRecord& record) const;
  // Leaves out those that cannot be encoded.
  std::vector<TextRecord> encode(std::vector<TextRecord> records, TokenRows& rows,
                                 LeftOut& left_out) const;
  void add_labels(const std::vector<TextRecord>& records, TokenRows& rows) const;

  const Files& files_;
  const RunConfig& config_;
  const ModelSpec& spec_;
  const RunInputs& inputs_;
  Log log_;
  DataUse use_;
  TextLabel label_;
  std::unique_ptr<Tokenizer> tokenizer_;
  bool is_first_ = true;
  bool have_all_classes_ = false;  // of lists of labels: a number for each class
  std::vector<std::string> names_;
};

// True if a run reads a first and a last place of each row beside tokens.
bool reads_spans(const RunInputs& inputs);

struct SpanRun {
  const Files& files;
  const RunConfig& config;
  const ModelSpec& spec;
  const Log& log;
};
// Rows of the span loss: windows of the questions in files (data/questions.h), each a sample, with
// where the first of the right answers begins and ends; place 0, [CLS], where a window has none.
// Throws Error{bad_data} as read_questions() does, or where nothing is left;
// Error{invalid_argument} for a tokenizer that tells no places, and as answer_windows().
std::shared_ptr<const RowSource> open_spans(const SpanRun& run, const RunInputs& inputs,
                                            const std::vector<std::string>& paths);

}  // namespace octet
