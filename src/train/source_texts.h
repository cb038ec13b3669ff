// Pairs of a source and a target as a model that translates trains on them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/files.h"
#include "base/log.h"
#include "config/run_config.h"
#include "data/dataset.h"
#include "data/row_source.h"
#include "data/text_records.h"
#include "nn/model.h"
#include "text/tokenizer.h"
#include "train/run_inputs.h"

namespace octet {

// True if a run reads a source beside tokens and their labels.
bool reads_sources(const RunInputs& inputs);

// Tables and JSON lines of two texts, by data.fields.text and data.fields.pair, or two files of
// lines each (data.targets, data.val_targets). A source is data.source_prefix and its text, cut to
// model.source_seq tokens; a target is cut to model.seq; with data.too_long: drop such a pair is
// left out. So is one with an empty side. What is cut and left out is told.
class SourceTexts {
 public:
  // Throws as run_tokenizer() and ending_tokens() do. All must outlive it.
  SourceTexts(const Files& files, const RunConfig& config, const ModelSpec& spec,
              const RunInputs& inputs, const Log& log);

  // Throws Error{bad_data} as read_text_records() and read_line_pairs() do, or where nothing is
  // left.
  std::shared_ptr<const RowSource> open(const std::vector<std::string>& paths) const;

 private:
  std::vector<TextRecord> read(const std::vector<std::string>& paths, LeftOut& left_out) const;

  const Files& files_;
  const RunConfig& config_;
  const ModelSpec& spec_;
  const RunInputs& inputs_;
  Log log_;
  std::unique_ptr<Tokenizer> tokenizer_;
};

// The text of a run with data.spans.share above 0 as rows of a source with spans left out and a
// target of these (data/span_rows.h). Sentinels are the tokens <extra_id_0>, <extra_id_1>, ..., or
// without these the model's ids that the tokenizer lacks, from the last one on. Throws
// Error{invalid_argument} where there are neither, and as span_rows() does.
Dataset with_spans_left_out(const Dataset& text, const RunConfig& config, const ModelSpec& spec,
                            const Tokenizer& tokenizer);

}  // namespace octet
