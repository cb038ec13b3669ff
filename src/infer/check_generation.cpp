#include "infer/check_generation.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>

#include "data/row_plan.h"
#include "infer/batch_inputs.h"

namespace octet {
namespace {

int64_t prefilled(const CheckSize& size) {
  return std::max<int64_t>(1, size.seq / 2);
}

// Columns [first, first + n) of a batch, with their positions.
std::vector<float> nll_of(BoundPlan& plan, const Batch& batch, int64_t first, int64_t n) {
  const auto columns = [&](const std::vector<int32_t>& all) {
    std::vector<int32_t> values;
    for (int64_t row = 0; row < batch.batch; ++row) {
      const auto from = all.begin() + row * batch.seq + first;
      values.insert(values.end(), from, from + n);
    }
    return values;
  };
  Batch part =
      text_batch(batch.batch, n, columns(batch.ints("tokens")), columns(batch.ints("labels")));
  const std::vector<int64_t> firsts(static_cast<size_t>(batch.batch), first);
  part.set(positions_input(), positions_of(batch.batch, n, {.first = firsts}));
  upload(plan, std::move(part), {scalar_input("inv_n", 1)});
  plan.run();
  std::vector<float> nll(static_cast<size_t>(batch.batch * n));
  plan.read_output("nll", nll.data(), std::ssize(nll) * static_cast<int64_t>(sizeof(float)));
  return nll;
}

void compare(const Batch& batch, const std::vector<float>& expected, const std::vector<float>& got,
             int64_t first, GenerationCheck& check) {
  const int64_t n = std::ssize(got) / batch.batch;
  for (int64_t row = 0; row < batch.batch; ++row) {
    for (int64_t t = 0; t < n; ++t) {
      const auto i = static_cast<size_t>(row * batch.seq + first + t);
      if (batch.ints("labels")[i] == kIgnoredLabel) continue;
      const float a = expected[i], b = got[static_cast<size_t>(row * n + t)];
      ++check.n_tokens;
      check.n_equal += std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b);
      const double difference = std::abs(static_cast<double>(a) - b);
      check.largest = std::isnan(difference) ? difference : std::max(check.largest, difference);
    }
  }
}

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
  const SampleEval windows(stream, {.seq = size.seq},
                           std::min(size.n_tokens, stream.n_tokens()) + 1);
  GenerationCheck check;
  const auto ms_since = [](Clock::time_point start) {
    return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
  };
  for (int64_t first = 0; first < windows.n_rows(); first += size.batch) {
    const Batch batch = windows.at(first, size.batch);
    auto start = Clock::now();
    const std::vector<float> expected = nll_of(whole, batch, 0, size.seq);
    check.forward_ms += ms_since(start);
    start = Clock::now();
    const int64_t n = prefilled(size);
    compare(batch, expected, nll_of(prefill, batch, 0, n), 0, check);
    for (int64_t t = n; t < size.seq; ++t)
      compare(batch, expected, nll_of(decode, batch, t, 1), t, check);
    check.cached_ms += ms_since(start);
  }
  return check;
}

}  // namespace octet
