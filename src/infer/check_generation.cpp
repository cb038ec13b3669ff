#include "infer/check_generation.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>

#include "data/loader.h"
#include "infer/batch_inputs.h"

namespace octet {
namespace {

int64_t prefilled(const CheckSize& size) {
  return std::max<int64_t>(1, size.seq / 2);
}

// Columns [first, first + n) of a batch, with their positions.
std::vector<float> nll_of(BoundPlan& plan, const Batch& batch, int64_t first, int64_t n) {
  Batch part{batch.batch, n, {}, {}};
  std::vector<int32_t> positions;
  for (int64_t row = 0; row < batch.batch; ++row) {
    const auto from = static_cast<size_t>(row * batch.seq + first);
    const auto to = from + static_cast<size_t>(n);
    part.tokens.insert(part.tokens.end(), &batch.tokens[from], batch.tokens.data() + to);
    part.labels.insert(part.labels.end(), &batch.labels[from], batch.labels.data() + to);
    for (int64_t t = 0; t < n; ++t) positions.push_back(static_cast<int32_t>(first + t));
  }
  write_batch(plan, part, 1.0f);
  const auto n_bytes = static_cast<int64_t>(positions.size() * sizeof(int32_t));
  if (plan.has_input("positions")) plan.write_input("positions", positions.data(), n_bytes);
  plan.run();
  std::vector<float> nll(part.labels.size());
  plan.read_output("nll", nll.data(), n_bytes);
  return nll;
}

class Comparison {
 public:
  explicit Comparison(const Batch& batch, GenerationCheck& check) : batch_(batch), check_(check) {}

  void add(const std::vector<float>& expected, const std::vector<float>& got, int64_t first,
           int64_t n) {
    for (int64_t row = 0; row < batch_.batch; ++row) {
      for (int64_t t = 0; t < n; ++t) {
        const auto i = static_cast<size_t>(row * batch_.seq + first + t);
        if (batch_.labels[i] == kIgnoredLabel) continue;
        const float a = expected[i], b = got[static_cast<size_t>(row * n + t)];
        ++check_.n_tokens;
        check_.n_equal += std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b);
        const double difference = std::abs(static_cast<double>(a) - b);
        check_.largest = std::isnan(difference) ? difference : std::max(check_.largest, difference);
      }
    }
  }

 private:
  const Batch& batch_;
  GenerationCheck& check_;
};

}  // namespace

std::vector<FunctionKey> check_functions(const CheckSize& size) {
  const auto cached = [&](int64_t seq) {
    return FunctionKey{function::score, {.batch = size.batch, .seq = seq, .cache = size.seq}};
  };
  std::vector<FunctionKey> keys = {{function::evaluate, {.batch = size.batch, .seq = size.seq}},
                                   cached(prefilled(size))};
  if (prefilled(size) > 1) keys.push_back(cached(1));
  return keys;
}

GenerationCheck check_generation(Inference& model, const TokenStream& stream,
                                 const CheckSize& size) {
  using Clock = std::chrono::steady_clock;
  const std::vector<FunctionKey> keys = check_functions(size);
  BoundPlan& whole = model.function(keys.front().name, keys.front().size);
  BoundPlan& prefill = model.function(keys[1].name, keys[1].size);
  BoundPlan& decode = model.function(keys.back().name, keys.back().size);
  const EvalWindows windows(stream, size.seq, std::min(size.n_tokens, stream.n_tokens()));
  GenerationCheck check;
  const auto ms_since = [](Clock::time_point start) {
    return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
  };
  for (int64_t first = 0; first < windows.n_rows(); first += size.batch) {
    const Batch batch = windows.at(first, size.batch);
    auto start = Clock::now();
    const std::vector<float> expected = nll_of(whole, batch, 0, size.seq);
    check.forward_ms += ms_since(start);
    Comparison comparison(batch, check);
    start = Clock::now();
    const int64_t n = prefilled(size);
    comparison.add(expected, nll_of(prefill, batch, 0, n), 0, n);
    for (int64_t t = n; t < size.seq; ++t) {
      comparison.add(expected, nll_of(decode, batch, t, 1), t, 1);
    }
    check.cached_ms += ms_since(start);
  }
  return check;
}

}  // namespace octet
