#include "bench/codec_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <span>

#include "backends/cpu/codec/codec.h"
#include "backends/cpu/common/simd_targets.h"
#include "base/philox.h"
#include "formats/table.h"
// After the list of targets.
#include <hwy/highway.h>

namespace octet {
namespace {

constexpr size_t kBlock = 8192;              // 32 KiB of f32
constexpr size_t kStream = size_t{1} << 24;  // 64 MiB of f32
constexpr int kRounds = 5;

struct Buffers {
  std::vector<float> values, copy;
  std::vector<uint8_t> codes;
};

Buffers make_buffers(size_t n) {
  Buffers b{std::vector<float>(n), std::vector<float>(n), std::vector<uint8_t>(n)};
  const RandomStream random{.name = name_hash("codec_bench")};
  for (size_t i = 0; i < n; ++i) b.values[i] = 8.0f * (random.uniform(i % 65536) - 0.5f);
  return b;
}

// Best of a few rounds, each of some milliseconds, after one call to warm up.
template <typename F>
double gigabytes_per_second(size_t n_elems, F&& run) {
  using Clock = std::chrono::steady_clock;
  const size_t repeats = std::max<size_t>(1, (size_t{1} << 22) / n_elems);
  double best = 0;
  run();
  for (int round = 0; round < kRounds; ++round) {
    const auto start = Clock::now();
    for (size_t i = 0; i < repeats; ++i) run();
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    best = std::max(best, 4e-9 * static_cast<double>(n_elems * repeats) / seconds);
  }
  return best;
}

// One direction of one format with and without vectors.
template <typename F>
BenchRow measure(BenchRow row, Dtype format, size_t n_elems, double copy_rate, F&& run) {
  const double scalar = gigabytes_per_second(n_elems, [&] { run(cpu::scalar_codec(format)); });
  row.value = gigabytes_per_second(n_elems, [&] { run(cpu::simd_codec(format)); });
  row.unit = "GB/s of f32";
  row.baseline = "scalar";
  row.ratio = row.value / scalar;
  row.share = row.value * 5 / (copy_rate * 8);  // five bytes moved for an element, a copy eight
  return row;
}

// The best target that was built and is allowed; Highway's better targets have lower bits.
std::string isa_text() {
  const int64_t targets = hwy::SupportedTargets() & HWY_TARGETS;
  if ((targets & HWY_AVX3) != 0) return "avx512";
  return (targets & HWY_AVX2) != 0 ? "avx2" : "scalar";
}

void bench_size(size_t n_elems, double floor, std::vector<BenchRow>& rows) {
  Buffers b = make_buffers(n_elems);
  const std::string isa = isa_text();
  const std::string shape = fmt::format("{} f32", n_elems);
  const double copy_rate = gigabytes_per_second(
      n_elems, [&] { std::memcpy(b.copy.data(), b.values.data(), n_elems * sizeof(float)); });
  for (const FormatRow& known : kFormats) {
    const Dtype format = known.dtype;
    if (!is_gemm_operand(format)) continue;
    BenchRow row;
    row.shape = shape;
    row.floor = isa == "avx512" ? floor : 0.0;
    row.isa = isa;
    row.name = fmt::format("encode {}", dtype_name(format));
    rows.push_back(measure(row, format, n_elems, copy_rate, [&](const cpu::Codec& codec) {
      codec.encode_f32(b.values.data(), n_elems, 1.1f, b.codes.data());
    }));
    row.name = fmt::format("decode {}", dtype_name(format));
    rows.push_back(measure(row, format, n_elems, copy_rate, [&](const cpu::Codec& codec) {
      codec.decode_f32(b.codes.data(), n_elems, 0.9f, b.copy.data());
    }));
  }
}

}  // namespace

std::vector<BenchRow> bench_codec() {
  std::vector<BenchRow> rows;
  bench_size(kBlock, 12.0, rows);
  bench_size(kStream, 5.0, rows);
  return rows;
}

}  // namespace octet
