// The answers to an evaluation's requests, a JSON object a line, so that an evaluation that was
// interrupted goes on where it was, and others can check each figure:
//   task, convention, shots, recipe, settings (what else answers depend on),
//   document, choice, model (a fingerprint of the weights), context, continuation, log_likelihood
//   (nats), is_greedy, tokens and where an answer is generated: prompt instead of context, answer
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "base/arithmetic.h"
#include "base/files.h"
#include "base/ordered_json.h"
#include "infer/model_source.h"

namespace octet {

// Fingerprint of the weights' files: names, sizes and samples of their bytes.
std::string model_fingerprint(const Files& files, const ModelSource& source);

class RequestLog {
 public:
  RequestLog() = default;  // keeps nothing
  // Reads the answers that are there; a last line that is cut short is dropped. Throws
  // Error{invalid_argument} where they are another model's, Error{bad_data} where a line is none.
  RequestLog(Files& files, const std::string& path, const std::string& model);

  // An answer to the same request: each of its keys has the same value.
  const OrderedJson* find(const OrderedJson& request) const;
  // The request's keys, then the answer's.
  void add(const OrderedJson& request, const OrderedJson& answer);

 private:
  static std::string identity(const OrderedJson& request);
  void keep(std::string_view text, const std::string& path);

  std::string model_;
  std::map<std::string, OrderedJson> answers_;
  std::unique_ptr<FileWriter> file_;
};

// Limits that the answers of a model with a recipe depend on beside weights and request, so that
// stored ones are taken for the same evaluation alone.
struct AnswerLimits {
  int64_t batch = 0;       // texts at a time
  int64_t longest = 0;     // tokens of a text, behind which its left is cut
  int64_t n_new = 0;       // tokens of a generated answer, at most
  uint64_t tokenizer = 0;  // its identity
  Arithmetic arithmetic = Arithmetic::own;
};

// "longest 2048, new 256, tokenizer 0123456789abcdef", where scales are measured over a batch
// ", batch 8", ", sums of hopper" where they are not a CPU's own, and where the source's options
// are not the default ", options " and their hash: of overrides, scaling, compute, activations,
// edge scales and of what these were predicted from.
std::string answer_settings(const ModelSource& source, const AnswerLimits& limits);

}  // namespace octet
