// A trained model that Python and include/octet ask: what it holds is made when it is first needed.
// Calls of several threads are queued. On the CPU a forked child of the process goes on with it.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/call_lock.h"
#include "infer/evaluate.h"
#include "infer/generation_setup.h"
#include "infer/inference.h"
#include "infer/text_model.h"
#include "infer/translate.h"
#include "infer/weights.h"
#include "library/open_backend.h"

namespace octet {

struct NllSize {
  int64_t batch = 8, seq = 0;  // seq 0: the model's, at most 2048
};

// What a call says of translations; what it leaves open the model's files say (DecodingDefaults).
struct TranslationCall {
  std::optional<int64_t> max_tokens = {};
  int64_t n_beams = 0;  // 0: the files'
  std::optional<double> length_penalty = {};
  std::optional<EarlyStopping> early_stopping = {};
  Sampling sampling = {};                         // without beams
  std::optional<std::string> source_prefix = {};  // else the run's
  int64_t batch = 1;                              // sources at a time
};

struct TranslatedSource {
  std::string text;
  Translation translation;
};

class LoadedModel {
 public:
  // `log` gets warnings. Throws as `octet generate` does.
  LoadedModel(const BackendRequest& machine, GenerationRequest request, const Log& log);

  const ModelSource& source() const { return setup_.source; }
  const Tokenizer& tokenizer() const { return *setup_.tokenizer; }
  int64_t context() const { return setup_.context; }
  std::vector<int32_t> tokens_of(const std::string& text) const;

  // f32 [tokens, vocab] into `out`: the logits behind each token of one text. `between` is called
  // now and then and may throw.
  void logits(std::span<const int32_t> tokens, std::span<float> out,
              const std::function<void()>& between);

  // The sum of `octet eval --tasks nll` of these tokens: windows of size.seq, each token but the
  // first predicted once; with the run's own recipe.
  NllSum nll(std::vector<int32_t> tokens, NllSize size, const std::function<void()>& between);
  // The same of a text, read as a file of it is.
  NllSum nll(std::string_view text, NllSize size, const std::function<void()>& between);

  std::vector<Completion> generate(const std::vector<Prompt>& prompts, int64_t batch,
                                   const GenerateOptions& options);
  // What `octet generate --sources` writes about each of them.
  std::vector<TranslatedSource> translate(const std::vector<std::string>& sources,
                                          const TranslationCall& call);
  // The model's own stop tokens, and where a text ends.
  GenerateOptions options() const { return setup_.options; }
  std::string said(const std::vector<int32_t>& tokens) const;

  const WeightReader& weights();
  // True if a parameter is stored as real numbers that can be shown as they are.
  bool is_plain(const std::string& parameter);

 private:
  CallLock::Held enter(const std::function<void()>& between = {});
  NllSum nll_of(const TokenStream& stream, NllSize size, const std::function<void()>& between);
  TextModel& text_model(LogitsFor purpose, int64_t n_entries, int64_t capacity);
  TranslateOptions translate_options(const TranslationCall& call) const;
  BoundPlan& evaluate(const FunctionKey& function);
  // While kernels of these rows are created.
  Backend& backend(std::optional<Backend>& kept, cpu::RowSums rows);

  BackendRequest machine_;
  pid_t process_;  // that loaded it
  GenerationSetup setup_;
  std::string recipe_;  // of nll
  Log log_;
  // Each goes before the machine that it computes on.
  std::optional<Backend> same_rows_, library_rows_;
  std::unique_ptr<TextModel> scoring_, generation_;
  std::unique_ptr<TextModel> translation_;
  ModelSpec translated_;  // of the model of translations: sources that it has room for
  std::optional<FunctionKey> evaluated_;
  std::unique_ptr<Inference> inference_;
  std::optional<WeightReader> weights_;
  CallLock lock_, weights_lock_;
};

}  // namespace octet
