// A trained model: log-likelihood, logits and text, as `octet eval` and `octet generate` give them.
//
// What a call needs (weights, kernels, a KV cache) is made when it is first needed and kept. Tokens
// are ids in [0, vocab()); text is UTF-8 where the tokenizer wants it.
//
// Determinism: on the CPU results are the same bits for any number of threads at one isa; in fp32
// and bf16 a text's logits do not depend on the texts beside it.
//
// Threads: calls of several threads are queued, each with its own result; different models do not
// disturb each other. A call from on_text is an error. A forked child goes on with a model on the
// CPU, but not with one whose process forked during a call.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "octet/machine.h"
#include "octet/messages.h"

namespace octet {

struct ModelOptions {
  std::string tokenizer = {};  // "bytes", a file or a folder; empty: the model's own
  // The precision; empty: the run's, fp32 for a Hugging Face folder. Where the run's has 8-bit
  // operands, text is generated in bf16.
  std::string recipe = {};
  int64_t context = 0;  // most tokens of a text; 0: the model's
  MessageSink on_message = {};
};

// Loss of a text: the sum over its predicted tokens of -ln p, in nats.
struct TextLoss {
  double sum = 0;
  int64_t n_tokens = 0;  // predicted ones: all but the first
  double mean() const { return n_tokens > 0 ? sum / static_cast<double>(n_tokens) : 0; }
  double perplexity() const;
};

struct TextLossOptions {
  int64_t batch = 8;  // rows at a time
  int64_t seq = 0;    // tokens of a row, each of which sees its own row alone; 0: the model's, at
                      // most 2048
};

struct GenerationSettings {
  int64_t max_tokens = 100;  // new ones
  double temperature = 0;    // 0: always the most probable token
  int64_t top_k = 0;         // so many most probable tokens; 0: all
  double top_p = 1;          // (0, 1]: the most probable tokens up to this sum
  double min_p = 0;          // [0, 1]: tokens of at least this share of the highest probability
  double repetition_penalty = 1;       // above 0; above 1: tokens of the text become less probable
  uint32_t seed = 1;                   // of a text: its tokens depend on no other text
  std::vector<std::string> stop = {};  // any of these ends the text, as the model's own end does
  int64_t batch = 0;                   // prompts at a time; 0: all
  // Gets the text of prompt `index` as it comes, in whole characters.
  std::function<void(size_t index, std::string_view text)> on_text = {};
};

struct GeneratedText {
  std::string prompt;           // as the tokenizer says it
  std::string text;             // the new one, up to a stop text
  std::vector<int32_t> tokens;  // the new ones, without a stop token
  std::string stop;             // what ended it: length, token, text
};

// Beams, length penalty, early stopping, max_tokens and prefix are those of the model's files where
// they are left open here, and else as `octet generate --sources` has them.
struct TranslationSettings {
  int64_t max_tokens = 0;                     // new ones; 0: left open
  int64_t beams = 0;                          // 0: left open; 1: no search; at most 64
  std::optional<double> length_penalty = {};  // sums of log probabilities over length^penalty
  std::string early_stopping = {};            // no, yes or never; empty: left open
  double temperature = 0;                     // without beams, as all below but the batch
  int64_t top_k = 0;
  double top_p = 1, min_p = 0;
  uint32_t seed = 1;
  std::optional<std::string> source_prefix = {};  // text before each source; open: the run's
  int64_t batch = 0;                              // sources at a time; 0: all
};

struct TranslatedText {
  std::string text;
  std::vector<int32_t> tokens;  // without an end token
  std::string stop;             // what ended it: length, token
  float score = 0;              // of beams
};

class Model {
 public:
  // `path`: a run (its newest whole checkpoint), RUN/ckpt/step-N, or a Hugging Face folder. Throws
  // Error: bad_data where it is none of them, invalid_argument where it has no tokenizer and the
  // options name none, or for a context beyond the model's.
  Model(const Machine& machine, const std::string& path, const ModelOptions& options = {});
  ~Model();
  Model(Model&&) noexcept;
  Model& operator=(Model&&) noexcept;

  std::string kind() const;  // "llama", ...
  int64_t vocab() const;
  int64_t n_parameters() const;
  int64_t context() const;  // most tokens of a text

  // Without what the tokenizer's file puts around texts.
  std::vector<int32_t> tokens(std::string_view text) const;
  std::string text(std::span<const int32_t> tokens) const;

  // Row-major [tokens.size(), vocab()]: the logits behind each token. At most context() tokens.
  // Throws Error{invalid_argument} for more and for ids outside the vocabulary.
  std::vector<float> logits(std::span<const int32_t> tokens);

  // Loss that `octet eval --tasks nll` prints for a file of this text or shards of these tokens.
  // Throws Error{invalid_argument} for fewer than two tokens and for ids outside the vocabulary.
  TextLoss nll(std::string_view text, const TextLossOptions& options = {});
  TextLoss nll(std::span<const int32_t> tokens, const TextLossOptions& options = {});

  // Text that `octet generate` gives. Throws Error{invalid_argument} for a prompt without tokens
  // and for settings outside their bounds.
  GeneratedText generate(const std::string& prompt, const GenerationSettings& settings = {});
  std::vector<GeneratedText> generate(const std::vector<std::string>& prompts,
                                      const GenerationSettings& settings = {});

  // Texts that `octet generate --sources` writes, of a model that translates; the calls above but
  // tokens and text are for the others. Throws Error{invalid_argument} for a source that is longer
  // than the model knows positions, and for settings outside their bounds.
  TranslatedText translate(const std::string& source, const TranslationSettings& settings = {});
  std::vector<TranslatedText> translate(const std::vector<std::string>& sources,
                                        const TranslationSettings& settings = {});

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace octet
