#include "backends/cpu/ranks/ranks.h"

#include <array>
#include <cmath>
#include <cstring>
#include <mutex>
#include <vector>

#include "base/bytes.h"
#include "formats/codec.h"

namespace octet::cpu {
namespace {

constexpr int64_t kSquareBlock = 256;

float load(In x, int64_t i) {
  switch (x.dtype) {
    case Dtype::f32:
      return static_cast<const float*>(x.data)[i];
    case Dtype::bf16:
      return f32_from_bf16(static_cast<const uint16_t*>(x.data)[i]);
    default:
      return decode<Dtype::fp16>(static_cast<const uint16_t*>(x.data)[i]);
  }
}

// The parts of all ranks, as what is summed.
class Parts {
 public:
  explicit Parts(const Summand& all) : x_(all.x) {
    if (!is_quantized(x_.dtype)) return;
    for (uint32_t code = 0; code < values_.size(); ++code)
      values_[code] = decode(x_.dtype, code) * all.scale;
  }
  float operator[](int64_t i) const {
    if (is_quantized(x_.dtype)) return values_[static_cast<const uint8_t*>(x_.data)[i]];
    return load(x_, i);
  }

 private:
  In x_;
  std::array<float, 256> values_ = {};  // of the codes
};

// An overflow stays one in FP16 too: by it all ranks skip the step.
void store(Out y, int64_t i, float value) {
  switch (y.dtype) {
    case Dtype::f32:
      static_cast<float*>(y.data)[i] = value;
      return;
    case Dtype::bf16:
      static_cast<uint16_t*>(y.data)[i] = bf16_from_f32(value);
      return;
    default:
      static_cast<uint16_t*>(y.data)[i] =
          static_cast<uint16_t>(encode<Dtype::fp16>(value, Rounding::rne, {.saturate = false}));
  }
}

// NaN is larger than any number.
float larger(float a, float b) {
  return std::isnan(a) || a > b ? a : b;
}

template <typename T, typename Larger>
void largest(Group* group, std::span<T> values, const Larger& larger_of) {
  if (group == nullptr) return;
  const std::vector<T> all = gather_values<T>(group, values);
  for (size_t i = 0; i < all.size(); ++i) {
    T& value = values[i % values.size()];
    value = larger_of(value, all[i]);
  }
}

}  // namespace

void all_gather(const Cut& cut, int64_t bytes, const std::byte* x, std::byte* y,
                std::byte* scratch) {
  if (cut.ranks() == 1) return copy_bytes(y, x, cut.n * bytes);
  const bool is_even = cut.n == cut.ranks() * cut.shard;
  cut.group->all_gather(x, is_even ? y : scratch, cut.shard * bytes);
  if (!is_even) copy_bytes(y, scratch, cut.n * bytes);
}

void reduce_scatter(const Cut& cut, const Summand& own, In into, Out y, std::byte* scratch) {
  const In x = own.x;
  const int64_t width = bytes_of(x.dtype, 1), whole = cut.ranks() * cut.shard;
  const std::byte* from = static_cast<const std::byte*>(x.data);
  if (cut.n != whole) {
    copy_bytes(scratch, from, cut.n * width);
    std::memset(scratch + cut.n * width, 0, static_cast<size_t>((whole - cut.n) * width));
    from = scratch;
  }
  const std::byte* gathered = from;
  if (cut.ranks() > 1) {
    std::byte* const received = scratch + whole * width;
    cut.group->all_to_all(from, received, cut.shard * width);
    gathered = received;
  }
  const Parts parts({{gathered, x.dtype}, own.scale});
  const int64_t a_host = cut.a_host == 0 ? 1 : cut.a_host;
  const auto of_host = [&](int64_t first, int64_t i) {
    float sum = parts[first * cut.shard + i];
    for (int64_t r = first + 1; r < first + a_host; ++r) sum += parts[r * cut.shard + i];
    return sum;
  };
  for (int64_t i = 0; i < cut.shard; ++i) {
    float sum = into ? load(into, i) : of_host(0, i);
    for (int64_t r = into ? 0 : a_host; r < cut.ranks(); r += a_host) sum += of_host(r, i);
    store(y, i, sum);
  }
}

ExactSum square_sum(In x, int64_t n, ThreadPool& pool) {
  std::mutex mutex;
  ExactSum total;
  for_blocks(pool, n, kBlockElems, [&](int64_t begin, int64_t end, int) {
    ExactSum sum;
    for (int64_t first = begin; first < end; first += kSquareBlock) {
      double squares = 0;
      for (int64_t i = first; i < std::min(end, first + kSquareBlock); ++i) {
        const auto value = static_cast<double>(load(x, i));
        squares += value * value;
      }
      sum.add(squares);
    }
    const std::lock_guard lock(mutex);
    total.add(sum.words());
  });
  return total;
}

ExactSum sum_over(Group* group, const ExactSum& own) {
  ExactSum total;
  for (const ExactSum::Words& words : gather_value(group, own.words())) total.add(words);
  return total;
}

void max_over(Group* group, std::span<float> values) {
  largest(group, values, larger);
}
void max_over(Group* group, std::span<uint8_t> flags) {
  largest(group, flags, [](uint8_t a, uint8_t b) { return std::max(a, b); });
}

}  // namespace octet::cpu
