// octet eval --tasks nll, perplexity: text and conversations under a decoder.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cli/common.h"
#include "data/rows.h"
#include "data/token_stream.h"
#include "infer/model_source.h"
#include "ir/batch_size.h"
#include "train/row_data.h"
#include "train/run_setup.h"

namespace octet {

inline constexpr int64_t kEvalBatch = 8, kLongestWindow = 2048;  // where nobody says more

// "perplexity" and "nll" are one computation, named by what is looked for.
struct TextTask {
  std::string name;
  std::vector<std::string> data;  // none: a run's own validation data
};

struct EvalTextFlags {
  std::string split_on;
  int64_t max_documents = 0, max_tokens = -1;  // max_tokens 0: all; below: the run's, or all
  int64_t seq = 0, batch = 0;                  // 0: the run's; the model's, at most 2,048, and 8
  bool per_document = false, per_row = false;
  bool is_raw = false, ends_texts = false;  // --raw-text, --text-end
  bool has_calib = false;                   // which --split-on is for, too

  bool splits_own_data() const { return !split_on.empty() && !has_calib; }
};

// Input of a task: rows of a text or of conversations, or documents one by one.
struct EvalText {
  std::string task;
  TokenStream stream = {};
  std::unique_ptr<EvalRows> rows = {};               // none: documents
  std::vector<std::vector<int32_t>> documents = {};  // of a text, without masks
  std::vector<int64_t> lengths = {};                 // of rows, ascending
  RowDocuments boundaries = RowDocuments::joined;
  int64_t batch = 1, n_documents = 1;
  EvalAmount amount = {};
};

// Conversations are read as training reads them: by the run's template, masks and packing, or as
// `octet train --model DIR --data` reads them. Throws Error{invalid_argument} where a folder has no
// data named, or flags of text are given for conversations, Error{bad_data} as open_run_data().
EvalText open_eval_text(const ModelSource& source, const TextTask& task, const EvalTextFlags& flags,
                        const RunDataOptions& options);

// Throws Error{invalid_argument} where the other model does not read the first one's tokens: its
// tokenizer's ids stand for other bytes, or where one has none its vocabulary is another, or it
// writes no text.
void expect_same_tokens(const ModelSource& first, const ModelSource& other);

// A row a task and source, which are models with a recipe each; of several also how far each is
// from the first, with the error over windows, conversations or documents. The first says how
// texts are read.
void run_eval_text(const std::vector<TextTask>& tasks, const EvalTextFlags& flags,
                   std::vector<ModelSource> sources, const GlobalOptions& options);

}  // namespace octet
