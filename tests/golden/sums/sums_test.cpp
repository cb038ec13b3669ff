// src/math/tensor_sums.h against what cards gave: all recorded products bit for bit, and mutants of
// the rule that the recorded ones catch.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <functional>
#include <map>

#include "data/npz.h"
#include "formats/codec.h"
#include "math/tensor_sums.h"

namespace octet::golden_sums {
namespace {

const std::string kCommitted = OCTET_SOURCE_DIR "/tests/golden/sums/products.npz";
const std::string kShared = std::string(OCTET_TEST_DATA) + "/vectors/tensor_sums/";

// A product: a [m, k] and b [n, k], and results [m, n] of either mode.
struct Case {
  std::string name;
  Dtype a_type, b_type;
  NumpyArray a, b;
  const NumpyArrays& of;

  int64_t m() const { return a.shape[0]; }
  int64_t n() const { return b.shape[0]; }
  int64_t k() const { return a.shape[1]; }
  const TensorSums& rule() const { return *find_tensor_sums(90, a_type, b_type); }
  const NumpyArray* array(const std::string& what) const {
    const auto found = of.find(name + "_" + what);
    return found == of.end() ? nullptr : &found->second;
  }
};

std::vector<Case> cases_of(const NumpyArrays& arrays) {
  std::vector<Case> cases;
  for (const auto& [key, array] : arrays) {
    if (!key.ends_with("_a")) continue;
    const std::string name = key.substr(0, key.size() - 2);
    const bool is_bf16 = name.starts_with("bf16");
    const auto type = [&](size_t at) {
      if (is_bf16) return Dtype::bf16;
      return name.compare(at, 4, "e5m2") == 0 ? Dtype::e5m2 : Dtype::e4m3;
    };
    cases.push_back({name, type(0), type(std::min<size_t>(5, name.size())), array,
                     arrays.at(name + "_b"), arrays});
  }
  return cases;
}

// The rule as a test may change it.
struct Mutant {
  std::string name;
  std::function<void(TensorSums&)> change = [](TensorSums&) {};
  bool normalizes = false;  // subnormals
  bool rounds = false;      // to nearest, what returns from a block
  bool one_mode = false;    // never promoted
};

std::vector<SumFactor> factors(const NumpyArray& codes, Dtype dtype, const Mutant& mutant) {
  const bool is_half = dtype_bytes(dtype) == 2;
  std::vector<SumFactor> all;
  const auto add = [&](uint32_t code) {
    SumFactor f =
        sum_factor(decode(dtype, code), lowest_exponent(dtype), dtype == Dtype::bf16 ? 7 : 3);
    while (mutant.normalizes && f.significand != 0 && std::abs(f.significand) < 8)
      f.significand *= 2, --f.exponent;
    all.push_back(f);
  };
  if (is_half)
    for (const uint16_t code : codes.values<uint16_t>()) add(code);
  else
    for (const uint8_t code : codes.values<uint8_t>()) add(code);
  return all;
}

// A sum of FP8 products that keeps all its bits, rounded to 13 behind the leading one.
float rounded_chain(TensorSums rule, const SumFactor* a, const SumFactor* b, int64_t k) {
  const int bits = rule.result;
  rule.result = 23;
  float sum = 0;
  for (int64_t i = 0; i < k; i += rule.block) {
    sum =
        add_block(rule, a + i, b + i, static_cast<int>(std::min<int64_t>(rule.block, k - i)), sum);
    const uint32_t half = 1u << (22 - bits), even = bits_of(sum) >> (23 - bits) & 1;
    const uint32_t mask = ~((1u << (23 - bits)) - 1);
    sum = float_of((bits_of(sum) + half - 1 + even) & mask);
  }
  return sum;
}

std::vector<float> sums(const Case& c, const std::string& mode, const Mutant& mutant = {}) {
  TensorSums rule = c.rule();
  mutant.change(rule);
  const auto a = factors(c.a, c.a_type, mutant), b = factors(c.b, c.b_type, mutant);
  const SumMode kind = mode == "slow" && !mutant.one_mode ? SumMode::promoted : SumMode::one_chain;
  std::vector<float> all;
  for (int64_t i = 0; i < c.m(); ++i) {
    for (int64_t j = 0; j < c.n(); ++j) {
      const SumFactor *row = a.data() + i * c.k(), *col = b.data() + j * c.k();
      if (!mutant.rounds) {
        all.push_back(sum_of_products(rule, kind, row, col, c.k()));
        continue;
      }
      const int64_t chain = kind == SumMode::promoted ? rule.chain : c.k();
      float total = 0;
      for (int64_t at = 0; at < c.k(); at += chain)
        total += rounded_chain(rule, row + at, col + at, std::min(chain, c.k() - at));
      all.push_back(total);
    }
  }
  return all;
}

struct Score {
  int64_t cases = 0, results = 0, equal = 0;
};

// Score of one mode: alpha times the sums, and a bias, rounded to the result's type.
Score score(const Case& c, const std::string& mode, const Mutant& mutant = {}) {
  const NumpyArray& want = *c.array(mode);
  const std::vector<float> y = sums(c, mode, mutant);
  const auto values = [&](const char* what, float otherwise) {
    const NumpyArray* array = c.array(what);
    return array == nullptr ? std::vector<float>{otherwise} : array->values<float>();
  };
  const auto scale_a = values("sa", 1), scale_b = values("sb", 1), bias = values("bias", 0);
  const auto at = [](const std::vector<float>& all, size_t i) {
    return all[all.size() > 1 ? i : 0];
  };
  const size_t bytes = want.bytes.size() / y.size();
  const auto wanted = [&](size_t i) {
    uint32_t code = 0;
    std::memcpy(&code, want.bytes.data() + i * bytes, bytes);
    return code;
  };
  Score result{1, static_cast<int64_t>(y.size()), 0};
  for (size_t i = 0; i < y.size(); ++i) {
    const size_t row = i / static_cast<size_t>(c.n()), col = i % static_cast<size_t>(c.n());
    float value = y[i];
    if (c.array("sa") != nullptr) value *= at(scale_a, row) * at(scale_b, col);
    if (c.array("bias") != nullptr) value += at(bias, col);
    const uint32_t got =
        bytes == 4 ? bits_of(value) : encode(bytes == 2 ? Dtype::bf16 : Dtype::e4m3, value);
    result.equal += got == wanted(i);
  }
  return result;
}

using Takes = std::function<bool(const Case&, const std::string& mode)>;

Score score_all(const NumpyArrays& arrays, const Mutant& mutant, const Takes& takes) {
  Score all;
  for (const Case& c : cases_of(arrays)) {
    for (const char* mode : {"fast", "slow"}) {
      if (c.array(mode) == nullptr || !takes(c, mode)) continue;
      const Score one = score(c, mode, mutant);
      all.cases += one.cases, all.results += one.results, all.equal += one.equal;
      if (mutant.name.empty()) {
        EXPECT_EQ(one.equal, one.results) << c.name << " " << mode;
      }
    }
  }
  return all;
}

bool is_fp8_pair(const Case& c) {
  return c.a_type != Dtype::bf16;
}
bool takes_all(const Case&, const std::string&) {
  return true;
}

TEST(TensorSums, give_the_bits_of_recorded_products) {
  const Score all = score_all(read_npz(posix_files(), kCommitted), {}, takes_all);
  EXPECT_EQ(all.cases, 118);
  EXPECT_EQ(all.equal, all.results);
  EXPECT_GT(all.results, 6000);
}

TEST(TensorSums, give_the_bits_of_all_products_of_the_shared_recordings) {
  if (!std::ifstream(kShared + "hopper_products.npz")) GTEST_SKIP() << "not there: " << kShared;
  const NumpyArrays first = read_npz(posix_files(), kShared + "hopper_products.npz");
  const auto is_bf16 = [](const Case& c, const std::string&) { return !is_fp8_pair(c); };
  const Score fp8 = score_all(first, {}, [](const Case& c, const auto&) { return is_fp8_pair(c); });
  const Score bf16 = score_all(first, {}, is_bf16);
  EXPECT_EQ(fp8.results, 52992);
  EXPECT_EQ(fp8.equal, 52992);
  EXPECT_EQ(bf16.results, 4608);
  EXPECT_EQ(bf16.equal, 4608);
  // Fast sums of products with few tiles and a long K are made in parts by the library.
  const auto is_whole = [](const Case& c, const std::string& mode) {
    return mode == "slow" || !c.name.starts_with("shape_") || c.k() < 14336;
  };
  const Score second =
      score_all(read_npz(posix_files(), kShared + "hopper_products_2.npz"), {}, is_whole);
  EXPECT_EQ(second.cases, 62);
  EXPECT_EQ(second.equal, second.results);
}

TEST(TensorSums, a_split_product_is_the_f32_sum_of_its_parts) {
  if (!std::ifstream(kShared + "hopper_products_2.npz")) GTEST_SKIP() << "not there: " << kShared;
  const NumpyArrays arrays = read_npz(posix_files(), kShared + "hopper_products_2.npz");
  const std::map<std::string, int64_t> parts = {
      {"shape_208_48_14336", 5}, {"shape_16_2048_14336", 4}, {"shape_256_256_65536", 3}};
  for (const Case& c : cases_of(arrays)) {
    const auto found = parts.find(c.name);
    if (found == parts.end()) continue;
    const auto a = factors(c.a, c.a_type, {}), b = factors(c.b, c.b_type, {});
    const auto want = c.array("fast")->values<float>();
    const int64_t part = (c.k() / 128 + found->second - 1) / found->second * 128;
    int64_t equal = 0;
    for (int64_t i = 0; i < c.m() * c.n(); ++i) {
      const SumFactor* row = a.data() + i / c.n() * c.k();
      const SumFactor* col = b.data() + i % c.n() * c.k();
      float sum = 0;
      for (int64_t at = 0; at < c.k(); at += part)
        sum += sum_of_products(c.rule(), SumMode::one_chain, row + at, col + at,
                               std::min(part, c.k() - at));
      equal += bits_of(sum) == bits_of(want[static_cast<size_t>(i)]);
    }
    EXPECT_EQ(equal, c.m() * c.n()) << c.name;
  }
}

const std::vector<Mutant>& fp8_mutants() {
  static const std::vector<Mutant> all = {
      {"blocks of 16", [](TensorSums& s) { s.block = 16; }},
      {"blocks of 64", [](TensorSums& s) { s.block = 64; }},
      {"12 fraction bits", [](TensorSums& s) { s.fraction = 12; }},
      {"14 fraction bits", [](TensorSums& s) { s.fraction = 14; }},
      {"result of 12 bits", [](TensorSums& s) { s.result = 12; }},
      {"result of 14 bits", [](TensorSums& s) { s.result = 14; }},
      {"result of f32", [](TensorSums& s) { s.result = 23; }},
      {"chains of 64", [](TensorSums& s) { s.chain = 64; }},
      {"chains of 256", [](TensorSums& s) { s.chain = 256; }},
      {.name = "subnormals normalized", .normalizes = true},
      {.name = "results to nearest", .rounds = true},
      {.name = "never promoted", .one_mode = true},
  };
  return all;
}
const std::vector<Mutant>& bf16_mutants() {
  static const std::vector<Mutant> all = {
      {"blocks of 8", [](TensorSums& s) { s.block = 8; }},
      {"blocks of 32", [](TensorSums& s) { s.block = 32; }},
      {"24 fraction bits", [](TensorSums& s) { s.fraction = 24; }},
      {"26 fraction bits", [](TensorSums& s) { s.fraction = 26; }},
      {"result of 22 bits", [](TensorSums& s) { s.result = 22; }},
  };
  return all;
}

TEST(TensorSums, every_mutant_of_the_rule_fails) {
  const NumpyArrays arrays = read_npz(posix_files(), kCommitted);
  const auto plain = [](const Case& c) { return c.array("sa") == nullptr; };
  for (const Mutant& mutant : fp8_mutants()) {
    const Score s = score_all(arrays, mutant, [&](const Case& c, const std::string&) {
      return is_fp8_pair(c) && plain(c);
    });
    EXPECT_LT(s.equal, s.results) << mutant.name;
    RecordProperty(mutant.name, fmt::format("{} of {}", s.equal, s.results));
  }
  for (const Mutant& mutant : bf16_mutants()) {
    const Score s = score_all(arrays, mutant,
                              [](const Case& c, const std::string&) { return !is_fp8_pair(c); });
    EXPECT_LT(s.equal, s.results) << mutant.name;
    RecordProperty(mutant.name, fmt::format("{} of {}", s.equal, s.results));
  }
}

TEST(TensorSums, no_row_is_promised_for_other_pairs_and_cards) {
  EXPECT_NE(find_tensor_sums(90, Dtype::e4m3, Dtype::e5m2), nullptr);
  EXPECT_EQ(find_tensor_sums(90, Dtype::e5m2, Dtype::e5m2), nullptr);
  EXPECT_EQ(find_tensor_sums(90, Dtype::bf16, Dtype::e4m3), nullptr);
  EXPECT_EQ(find_tensor_sums(89, Dtype::e4m3, Dtype::e4m3), nullptr);
  EXPECT_EQ(find_tensor_sums(100, Dtype::bf16, Dtype::bf16), nullptr);
}

}  // namespace
}  // namespace octet::golden_sums
