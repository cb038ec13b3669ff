#include "runtime/magnitudes.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "formats/codec.h"

namespace octet {
namespace {

constexpr size_t kPieceBytes = 1 << 18;

// Without its sign a code of an IEEE layout is ordered like its value, infinity last before NaN.
template <typename Code>
Code largest_code(std::span<const std::byte> bytes, Code largest_counted) {
  constexpr Code kMagnitude = std::numeric_limits<Code>::max() >> 1;
  Code largest = 0;
  for (size_t at = 0; at + sizeof(Code) <= bytes.size(); at += sizeof(Code)) {
    Code code;
    std::memcpy(&code, bytes.data() + at, sizeof(Code));
    const Code magnitude = code & kMagnitude;
    largest = std::max(largest, magnitude <= largest_counted ? magnitude : Code{0});
  }
  return largest;
}

template <typename Code>
double largest_value(ThreadPool& pool, std::span<const std::byte> bytes, Code infinity,
                     Infinities infinities, double (*value_of)(Code code)) {
  const Code counted =
      infinities == Infinities::counted ? infinity : static_cast<Code>(infinity - 1);
  return largest_of_pieces(pool, bytes.size(), kPieceBytes, [&](size_t first, size_t end) {
    return value_of(largest_code<Code>(bytes.subspan(first, end - first), counted));
  });
}

double f32_value(uint32_t code) {
  return static_cast<double>(std::bit_cast<float>(code));
}
template <Dtype D>
double half_value(uint16_t code) {
  return static_cast<double>(decode<D>(code));
}

}  // namespace

double largest_of_pieces(ThreadPool& pool, size_t n, size_t piece,
                         const std::function<double(size_t first, size_t end)>& of) {
  const size_t n_pieces = (n + piece - 1) / piece;
  std::vector<double> largest(n_pieces, 0);
  pool.run(static_cast<int64_t>(n_pieces), [&](int64_t i, int) {
    const size_t first = static_cast<size_t>(i) * piece;
    largest[static_cast<size_t>(i)] = of(first, std::min(n, first + piece));
  });
  return n_pieces == 0 ? 0 : *std::ranges::max_element(largest);
}

CodeCounts code_counts(ThreadPool& pool, std::span<const std::byte> codes) {
  constexpr size_t kTables = 4;  // equal codes in a row would wait for each other in one
  const size_t n_pieces = (codes.size() + kPieceBytes - 1) / kPieceBytes;
  std::vector<CodeCounts> of_pieces(n_pieces);
  pool.run(static_cast<int64_t>(n_pieces), [&](int64_t i, int) {
    const size_t first = static_cast<size_t>(i) * kPieceBytes;
    const auto piece = codes.subspan(first, std::min(kPieceBytes, codes.size() - first));
    std::array<std::array<uint32_t, 256>, kTables> tables{};
    for (size_t at = 0; at < piece.size(); ++at)
      ++tables[at % kTables][static_cast<size_t>(piece[at])];
    CodeCounts& counts = of_pieces[static_cast<size_t>(i)] = {};
    for (const auto& table : tables)
      for (size_t code = 0; code < counts.size(); ++code) counts[code] += table[code];
  });
  CodeCounts all{};
  for (const CodeCounts& counts : of_pieces)
    for (size_t code = 0; code < all.size(); ++code) all[code] += counts[code];
  return all;
}

double largest_magnitude(ThreadPool& pool, Dtype dtype, std::span<const std::byte> bytes,
                         Infinities infinities) {
  if (dtype == Dtype::f32)
    return largest_value<uint32_t>(pool, bytes, 0x7F80'0000, infinities, f32_value);
  if (dtype == Dtype::bf16)
    return largest_value<uint16_t>(pool, bytes, 0x7F80, infinities, half_value<Dtype::bf16>);
  if (dtype == Dtype::fp16)
    return largest_value<uint16_t>(pool, bytes, 0x7C00, infinities, half_value<Dtype::fp16>);
  const CodeCounts counts = code_counts(pool, bytes);
  double largest = 0;
  for (uint32_t code = 0; code < counts.size(); ++code) {
    const double x = std::fabs(static_cast<double>(decode(dtype, code)));
    const bool is_left_out = std::isnan(x) || (std::isinf(x) && infinities == Infinities::left_out);
    if (counts[code] > 0 && !is_left_out) largest = std::max(largest, x);
  }
  return largest;
}

}  // namespace octet
