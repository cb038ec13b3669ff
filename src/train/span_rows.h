// Questions and their contexts as rows, with where the answer begins and ends: of the span loss.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/files.h"
#include "base/log.h"
#include "config/run_config.h"
#include "data/row_source.h"
#include "nn/model.h"
#include "train/run_inputs.h"

namespace octet {

// Whether a run reads a first and a last place of each row beside tokens.
bool reads_spans(const RunInputs& inputs);

struct SpanRun {
  const Files& files;
  const RunConfig& config;
  const ModelSpec& spec;
  const Log& log;
};
// Windows (data/answer_windows.h) of the questions in files (data/questions.h), each a sample, with
// the first of the right answers; place 0, [CLS], where a window has none. Throws Error{bad_data}
// as read_questions() does, or where nothing is left; Error{invalid_argument} for a tokenizer that
// tells no places, and as answer_windows().
std::shared_ptr<const RowSource> open_spans(const SpanRun& run, const RunInputs& inputs,
                                            const std::vector<std::string>& paths);

}  // namespace octet
