#include "infer/generate.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/error.h"
#include "base/philox.h"
#include "infer/batch_inputs.h"

namespace octet {
namespace {

// The padded length for a prefix: a power of two, but never beyond the context.
int64_t bucket(int64_t n_tokens, int64_t context) {
  const auto power = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(n_tokens)));
  return std::min(power, context);
}

int32_t most_probable(const std::vector<float>& logits) {
  return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

// By the cumulated probabilities in the order of the ids, in double.
int32_t draw(const std::vector<float>& logits, double temperature, double uniform) {
  const double top = static_cast<double>(*std::max_element(logits.begin(), logits.end()));
  std::vector<double> weights(logits.size());
  double total = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    weights[i] = std::exp((static_cast<double>(logits[i]) - top) / temperature);
    total += weights[i];
  }
  double left = uniform * total;
  for (size_t i = 0; i < weights.size(); ++i) {
    left -= weights[i];
    if (left < 0) return static_cast<int32_t>(i);
  }
  return most_probable(logits);
}

void check_prompt(std::span<const int32_t> prompt, const GenerateOptions& options, int64_t vocab) {
  if (prompt.empty()) {
    throw Error(ErrorCode::invalid_argument, "[generate] expected a prompt, got an empty one");
  }
  for (const int32_t id : prompt) {
    if (id >= 0 && id < vocab) continue;
    throw Error(ErrorCode::invalid_argument,
                "[generate] expected tokens below the vocabulary's {}, got {}", vocab, id);
  }
  CHECK(options.max_tokens >= 0 && options.context >= 1 && options.temperature >= 0);
}

}  // namespace

std::vector<FunctionKey> generation_functions(int64_t prompt_tokens,
                                              const GenerateOptions& options) {
  std::vector<FunctionKey> functions;
  const int64_t n_added = std::clamp<int64_t>(options.max_tokens - 1, 0, options.context);
  const int64_t longest = std::min(prompt_tokens + n_added, options.context);
  for (int64_t n = std::min(std::max<int64_t>(prompt_tokens, 1), options.context);;) {
    const int64_t seq = bucket(n, options.context);
    functions.push_back({function::logits, {.batch = 1, .seq = seq}});
    if (seq >= longest) return functions;
    n = seq + 1;
  }
}

std::vector<int32_t> generate(Inference& model, std::span<const int32_t> prompt,
                              const GenerateOptions& options,
                              const std::function<void(int32_t)>& on_token) {
  check_prompt(prompt, options, model.spec().vocab);
  std::vector<int32_t> tokens(prompt.begin(), prompt.end());
  for (int64_t i = 0; i < options.max_tokens; ++i) {
    const auto n = std::min<int64_t>(static_cast<int64_t>(tokens.size()), options.context);
    const int64_t seq = bucket(n, options.context);
    BoundPlan& function = model.function(function::logits, {.batch = 1, .seq = seq});
    const std::span<const int32_t> prefix = std::span(tokens).last(static_cast<size_t>(n));
    write_batch(function, padded_row(prefix, seq), 0);
    function.run();
    const std::vector<float> logits = model.read_logits(function, n - 1);
    if (std::any_of(logits.begin(), logits.end(), [](float x) { return std::isnan(x); })) {
      throw Error(ErrorCode::numerics, "[generate] expected finite logits, got NaN for token {}",
                  tokens.size());
    }
    const RandomStream random{.name = name_hash("generate"), .seed = options.seed};
    const int32_t id = options.temperature > 0
                           ? draw(logits, options.temperature,
                                  static_cast<double>(random.uniform(static_cast<uint64_t>(i))))
                           : most_probable(logits);
    if (std::find(options.stop.begin(), options.stop.end(), id) != options.stop.end()) break;
    tokens.push_back(id);
    if (on_token) on_token(id);
  }
  return {tokens.begin() + static_cast<int64_t>(prompt.size()), tokens.end()};
}

}  // namespace octet
