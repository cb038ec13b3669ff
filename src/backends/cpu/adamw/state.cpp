#include "backends/cpu/adamw/state.h"

#include <algorithm>

#include "formats/dtype.h"

namespace octet::cpu {
namespace {

// Calls f(begin, end) with whole groups.
template <typename Fn>
void for_groups(const StateCoding& state, int64_t n, ThreadPool& pool, const Fn& f) {
  const int64_t block = std::max<int64_t>(1, kBlockElems / state.group) * state.group;
  for_blocks(pool, n, block, [&](int64_t begin, int64_t end, int) { f(begin, end); });
}

}  // namespace

void load_state(const StateCoding& state, StoredState<const void> from, float* y, int64_t n,
                ThreadPool& pool) {
  const auto [x, rest] = from;
  for_groups(state, n, pool, [&, x = x, rest = rest](int64_t begin, int64_t end) {
    const auto* const words = static_cast<const uint16_t*>(x);
    if (is_quantized(state.coding.dtype)) {
      for (int64_t at = begin; at < end; at += state.group) {
        const auto count = static_cast<size_t>(std::min(state.group, end - at));
        decode_moments(state.coding, static_cast<const uint32_t*>(rest)[at / state.group],
                       {static_cast<const uint8_t*>(x) + at, count}, {y + at, count});
      }
    } else if (state.coding.dtype == Dtype::f32) {
      std::copy_n(static_cast<const float*>(x) + begin, end - begin, y + begin);
    } else if (rest != nullptr) {
      const auto* const low = static_cast<const int16_t*>(rest);
      for (int64_t i = begin; i < end; ++i) y[i] = join_master({words[i], low[i]});
    } else {
      for (int64_t i = begin; i < end; ++i) y[i] = f32_from_bf16(words[i]);
    }
  });
}

void store_state(const StateCoding& state, const float* x, StoredState<void> to, int64_t n,
                 ThreadPool& pool) {
  const auto [y, rest] = to;
  for_groups(state, n, pool, [&, y = y, rest = rest](int64_t begin, int64_t end) {
    auto* const words = static_cast<uint16_t*>(y);
    if (is_quantized(state.coding.dtype)) {
      for (int64_t at = begin; at < end; at += state.group) {
        const auto count = static_cast<size_t>(std::min(state.group, end - at));
        encode_moments(state.coding, {x + at, count}, {state.random, state.first + at},
                       {static_cast<uint8_t*>(y) + at, count},
                       static_cast<uint32_t*>(rest)[at / state.group]);
      }
    } else if (state.coding.dtype == Dtype::f32) {
      std::copy_n(x + begin, end - begin, static_cast<float*>(y) + begin);
    } else if (rest != nullptr) {
      for (int64_t i = begin; i < end; ++i) {
        const MasterBits parts = split_master(x[i]);
        words[i] = parts.hi, static_cast<int16_t*>(rest)[i] = parts.lo;
      }
    } else if (state.coding.stochastic) {
      for (int64_t i = begin; i < end; ++i)
        words[i] = stochastic_bf16(x[i], state.random.bits(static_cast<uint64_t>(state.first + i)));
    } else {
      for (int64_t i = begin; i < end; ++i) words[i] = bf16_from_f32(x[i]);
    }
  });
}

}  // namespace octet::cpu
