// The CPU's GEMMs with a card's sums (backends/cpu/gemm/tensor_gemm.h) against what cards gave, and
// with vectors against those without.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "backends/cpu/gemm/tensor_gemm.h"
#include "data/npz.h"
#include "formats/codec.h"

namespace octet::cpu {
namespace {

using Kind = Granularity::Kind;

struct Matrix {
  TensorType type;
  std::vector<uint8_t> bytes;  // row-major
};

Matrix transposed(const Matrix& from) {
  const int64_t rows = from.type.shape[0], cols = from.type.shape[1];
  const auto width = static_cast<size_t>(dtype_bytes(from.type.dtype));
  Matrix to = from;
  to.type.shape = {cols, rows};
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < cols; ++c)
      std::copy_n(from.bytes.begin() + static_cast<int64_t>(width) * (r * cols + c), width,
                  to.bytes.begin() + static_cast<int64_t>(width) * (c * rows + r));
  }
  return to;
}

// a [m, k], b [n, k], and how they are multiplied.
struct Problem {
  Matrix a, b;
  TensorGemm gemm;
  Dtype y = Dtype::f32;
  std::vector<float> scale_a = {1}, scale_b = {1}, c = {};  // c: [n], or [m, n]
  bool trans_a = false, trans_b = true, plain = false, in_place = false;
  int n_threads = 1;

  int64_t m() const { return a.type.shape[0]; }
  int64_t n() const { return b.type.shape[0]; }
  int64_t k() const { return a.type.shape[1]; }
};

// Codes of y's type.
std::vector<uint32_t> run(const Problem& p) {
  const Matrix a = p.trans_a ? transposed(p.a) : p.a, b = p.trans_b ? p.b : transposed(p.b);
  const TensorSumGemm gemm({.gemm = p.gemm,
                            .m = p.m(),
                            .n = p.n(),
                            .k = p.k(),
                            .a = a.type,
                            .b = b.type,
                            .trans_a = p.trans_a,
                            .trans_b = p.trans_b,
                            .plain = p.plain},
                           p.n_threads);
  std::vector<std::byte> scratch(gemm.scratch_bytes() + 64);
  auto* const aligned = reinterpret_cast<std::byte*>(
      round_up(reinterpret_cast<int64_t>(scratch.data()), int64_t{64}));
  const auto width = static_cast<size_t>(dtype_bytes(p.y));
  std::vector<uint8_t> y(static_cast<size_t>(p.m() * p.n()) * width, 0xFF), c;
  for (const float x : p.c) {
    const uint32_t code = p.y == Dtype::f32 ? bits_of(x) : encode(p.y, x);
    c.insert(c.end(), reinterpret_cast<const uint8_t*>(&code),
             reinterpret_cast<const uint8_t*>(&code) + width);
  }
  if (p.in_place) y = c;
  const In addend{p.in_place ? y.data() : c.data(), p.y};
  const bool is_row = std::ssize(p.c) == p.n() && p.m() > 1;
  ThreadPool pool(p.n_threads);
  gemm.launch({.a = a.bytes.data(),
               .b = b.bytes.data(),
               .y = {y.data(), p.y},
               .scale_a = p.scale_a.data(),
               .scale_b = p.scale_b.data(),
               .bias = is_row ? addend : In{},
               .addend = is_row || p.c.empty() ? In{} : addend,
               .scratch = aligned},
              pool);
  std::vector<uint32_t> codes;
  for (size_t at = 0; at < y.size(); at += width) {
    codes.push_back(0);
    std::memcpy(&codes.back(), y.data() + at, width);
  }
  return codes;
}

Matrix matrix_of(const NumpyArray& array, Dtype dtype) {
  return {{dtype, {array.shape[0], array.shape[1]}}, {array.bytes.begin(), array.bytes.end()}};
}

TEST(TensorSumGemm, gives_the_bits_of_recorded_products) {
  const NumpyArrays arrays =
      read_npz(posix_files(), OCTET_SOURCE_DIR "/tests/golden/sums/products.npz");
  int64_t n_equal = 0, n_all = 0;
  for (const auto& [key, array] : arrays) {
    if (!key.ends_with("_a")) continue;
    const std::string name = key.substr(0, key.size() - 2);
    const auto find = [&](const std::string& what) {
      const auto found = arrays.find(name + "_" + what);
      return found == arrays.end() ? nullptr : &found->second;
    };
    const auto type_at = [&](size_t at) {
      if (name.starts_with("bf16")) return Dtype::bf16;
      return name.compare(at, 4, "e5m2") == 0 ? Dtype::e5m2 : Dtype::e4m3;
    };
    Problem p{.a = matrix_of(array, type_at(0)),
              .b = matrix_of(*find("b"), type_at(std::min<size_t>(5, name.size()))),
              .gemm = {}};
    p.gemm.rule = find_tensor_sums(90, p.a.type.dtype, p.b.type.dtype);
    if (find("sa") != nullptr) p.scale_a = find("sa")->values<float>();
    if (find("sb") != nullptr) p.scale_b = find("sb")->values<float>();
    if (find("bias") != nullptr) p.c = find("bias")->values<float>();
    if (p.scale_a.size() > 1) {
      p.gemm.scales = TensorGemm::Scales::rows;
      p.a.type.granularity = p.b.type.granularity = {.kind = Kind::row};
    }
    for (const char* mode : {"fast", "slow"}) {
      const NumpyArray* want = find(mode);
      if (want == nullptr) continue;
      p.gemm.mode = mode == std::string("slow") ? SumMode::promoted : SumMode::one_chain;
      const size_t width = want->bytes.size() / static_cast<size_t>(p.m() * p.n());
      p.y = width == 4 ? Dtype::f32 : width == 2 ? Dtype::bf16 : Dtype::e4m3;
      for (const bool plain : {false, true}) {
        p.plain = plain;
        const std::vector<uint32_t> got = run(p);
        int64_t equal = 0;
        for (size_t i = 0; i < got.size(); ++i) {
          uint32_t code = 0;
          std::memcpy(&code, want->bytes.data() + i * width, width);
          equal += got[i] == code;
        }
        EXPECT_EQ(equal, std::ssize(got)) << name << " " << mode << (plain ? " plain" : "");
        n_equal += equal, n_all += std::ssize(got);
      }
    }
  }
  EXPECT_EQ(n_equal, n_all);
  EXPECT_GT(n_all, 12000);
}

// Codes of all magnitudes, many of them zeros; where it is asked for, NaN and infinities.
Matrix random_matrix(std::mt19937& random, Dtype dtype, int64_t rows, int64_t cols,
                     bool has_specials) {
  Matrix m{{dtype, {rows, cols}}, {}};
  if (dtype_bytes(dtype) == 1) m.type.granularity = {.kind = Kind::tensor};
  const auto width = static_cast<size_t>(dtype_bytes(dtype));
  for (int64_t i = 0; i < rows * cols;) {
    uint32_t code = random() & (width == 1 ? 0xFFu : 0xFFFFu);
    if (random() % 4 == 0) code = 0;
    const bool may_stay = has_specials && random() % 8 == 0;
    if (!may_stay && !is_finite(decode(dtype, code))) continue;
    m.bytes.insert(m.bytes.end(), reinterpret_cast<const uint8_t*>(&code),
                   reinterpret_cast<const uint8_t*>(&code) + width);
    ++i;
  }
  return m;
}

struct Pair {
  Dtype a, b;
};
constexpr Pair kPairs[] = {{Dtype::e4m3, Dtype::e4m3}, {Dtype::e5m2, Dtype::e4m3},
                           {Dtype::e4m3, Dtype::e5m2}, {Dtype::bf16, Dtype::bf16},
                           {Dtype::fp16, Dtype::fp16}, {Dtype::hif8, Dtype::e4m3}};

TEST(TensorSumGemm, gives_the_bits_of_the_rule_with_vectors_and_without) {
  std::mt19937 random(7);
  for (const Pair& pair : kPairs) {
    for (const int64_t k : {1, 15, 16, 17, 33, 127, 128, 129, 256, 300, 600}) {
      for (const bool specials : {false, true}) {
        Problem p{.a = random_matrix(random, pair.a, 5, k, specials),
                  .b = random_matrix(random, pair.b, 19, k, specials),
                  .gemm = {}};
        const bool fp8 = pair.a != Dtype::hif8;
        p.gemm.rule = fp8 ? find_tensor_sums(90, pair.a, pair.b)
                          : find_tensor_sums(90, Dtype::bf16, Dtype::bf16);
        p.gemm.factors = pair.a == Dtype::fp16 ? Dtype::fp16 : Dtype::bf16;
        p.gemm.mode = random() % 2 == 0 ? SumMode::promoted : SumMode::one_chain;
        p.scale_a = {0.375f}, p.scale_b = {1.7f};
        const auto factor = [&](const Matrix& m, int64_t i) {
          const Dtype multiplied = p.gemm.rule->fp8 ? m.type.dtype : p.gemm.factors;
          uint32_t code = 0;
          const auto width = static_cast<size_t>(dtype_bytes(m.type.dtype));
          std::memcpy(&code, m.bytes.data() + static_cast<size_t>(i) * width, width);
          return sum_factor(decode(m.type.dtype, code), lowest_exponent(multiplied),
                            p.gemm.rule->fraction_of_factors);
        };
        std::vector<uint32_t> want;
        for (int64_t i = 0; i < p.m(); ++i) {
          for (int64_t j = 0; j < p.n(); ++j) {
            std::vector<SumFactor> row, col;
            for (int64_t l = 0; l < k; ++l)
              row.push_back(factor(p.a, i * k + l)), col.push_back(factor(p.b, j * k + l));
            const float sum = sum_of_products(*p.gemm.rule, p.gemm.mode, row.data(), col.data(), k);
            want.push_back(bits_of(scaled_sum(0.375f * 1.7f, sum, 0)));
          }
        }
        const auto what = fmt::format("{} x {}, k {}", dtype_name(pair.a), dtype_name(pair.b), k);
        EXPECT_EQ(run(p), want) << what;
        p.trans_a = true, p.trans_b = false, p.n_threads = 3;
        EXPECT_EQ(run(p), want) << what << ", as they lie otherwise";
        p.plain = true;
        EXPECT_EQ(run(p), want) << what << ", plain";
      }
    }
  }
}

// Tiles are of 128 x 128, panels of 16 columns.
TEST(TensorSumGemm, an_output_does_not_depend_on_what_is_beside_it) {
  std::mt19937 random(8);
  const Matrix a = random_matrix(random, Dtype::e4m3, 150, 300, false),
               b = random_matrix(random, Dtype::e5m2, 133, 300, false);
  Problem whole{.a = a, .b = b, .gemm = {}};
  whole.gemm.rule = find_tensor_sums(90, Dtype::e4m3, Dtype::e5m2);
  whole.n_threads = 4;
  const std::vector<uint32_t> want = run(whole);
  const auto row_of = [](const Matrix& m, int64_t r) {
    const int64_t k = m.type.shape[1];
    Matrix one{{m.type.dtype, {1, k}, m.type.granularity}, {}};
    one.bytes.assign(m.bytes.begin() + r * k, m.bytes.begin() + (r + 1) * k);
    return one;
  };
  for (const int64_t i : {0, 127, 128, 149}) {
    for (const int64_t j : {0, 15, 16, 127, 128, 132}) {
      Problem one{.a = row_of(a, i), .b = row_of(b, j), .gemm = whole.gemm};
      EXPECT_EQ(run(one)[0], want[static_cast<size_t>(i * 133 + j)]) << i << ", " << j;
    }
  }
}

TEST(TensorSumGemm, an_addend_in_ys_memory_is_added_to_the_rounded_sum) {
  std::mt19937 random(9);
  Problem p{.a = random_matrix(random, Dtype::e4m3, 16, 64, false),
            .b = random_matrix(random, Dtype::e4m3, 16, 64, false),
            .gemm = {},
            .y = Dtype::bf16};
  p.gemm.rule = find_tensor_sums(90, Dtype::e4m3, Dtype::e4m3);
  const std::vector<uint32_t> sums = run(p);
  for (int i = 0; i < 256; ++i)
    p.c.push_back(decode(Dtype::bf16, static_cast<uint32_t>(0x4400 + random() % 256)));
  const std::vector<uint32_t> apart = run(p);
  p.in_place = true;
  const std::vector<uint32_t> in_place = run(p);
  int64_t n_other = 0;
  for (size_t i = 0; i < sums.size(); ++i) {
    EXPECT_EQ(in_place[i], encode(Dtype::bf16, decode(Dtype::bf16, sums[i]) + p.c[i]));
    n_other += in_place[i] != apart[i];
  }
  EXPECT_GT(n_other, 0);
}

// Values that 16 bits do not hold, stored as cards do: an overflow is seen; E4M3 has no infinity.
TEST(TensorSumGemm, stores_infinities_where_the_type_has_them) {
  const auto all_of = [](Dtype dtype, float x) {
    Matrix m{{dtype, {16, 16}}, {}};
    const uint32_t code = encode(dtype, x);
    const auto* const bytes = reinterpret_cast<const uint8_t*>(&code);
    for (int i = 0; i < 256; ++i) m.bytes.insert(m.bytes.end(), bytes, bytes + dtype_bytes(dtype));
    if (dtype_bytes(dtype) == 1) m.type.granularity = {.kind = Kind::tensor};
    return m;
  };
  struct Case {
    Dtype factors, y;
    float a, scale;
    uint32_t want;
  };
  // 16 products of 256 x 256.
  const Case cases[] = {
      {Dtype::fp16, Dtype::fp16, 256, 1, 0x7C00}, {Dtype::fp16, Dtype::fp16, -256, 1, 0xFC00},
      {Dtype::fp16, Dtype::fp16, 1, 1, 0x6C00},   {Dtype::bf16, Dtype::bf16, 256, 3e38f, 0x7F80},
      {Dtype::e4m3, Dtype::fp16, 256, 1, 0x7C00}, {Dtype::e4m3, Dtype::e4m3, 256, 1, 0x7E}};
  for (const Case& c : cases) {
    for (const bool plain : {false, true}) {
      Problem p{.a = all_of(c.factors, c.a), .b = all_of(c.factors, 256), .gemm = {}, .y = c.y};
      p.gemm.rule = find_tensor_sums(90, c.factors, c.factors);
      p.gemm.factors = c.factors;
      p.scale_a = {c.scale};
      p.plain = plain;
      const std::string what = fmt::format("{} -> {}", dtype_name(c.factors), dtype_name(c.y));
      EXPECT_EQ(run(p), std::vector<uint32_t>(256, c.want)) << what;
      if (dtype_bytes(c.y) == 1) continue;
      p.c.assign(256, 1), p.in_place = true;
      if (std::isinf(decode(c.y, c.want))) {
        EXPECT_EQ(run(p), std::vector<uint32_t>(256, c.want)) << what << ", added to";
      }
    }
  }
}

}  // namespace
}  // namespace octet::cpu
