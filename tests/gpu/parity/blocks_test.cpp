// Quantizers in blocks, of any rule and rounding, and products of what they make, at the sizes
// where kernels part: whole tiles and ragged ones, factors that the library multiplies in blocks,
// those that are transposed for it, and those that are decoded.
#include <cmath>
#include <limits>

#include "table.h"

namespace octet::fusion {
namespace {

struct BlockShape {
  int64_t rows, cols;
  Dtype scales;
  ScaleRule rule;
};
constexpr BlockShape kBlocks[] = {{1, 128, Dtype::bf16, ScaleRule::power_ceil},
                                  {128, 1, Dtype::bf16, ScaleRule::power_ceil},
                                  {128, 128, Dtype::bf16, ScaleRule::power_ceil},
                                  {1, 32, Dtype::e8m0, ScaleRule::power_ceil},
                                  {1, 32, Dtype::e8m0, ScaleRule::mx_floor},
                                  {32, 1, Dtype::e8m0, ScaleRule::power_ceil},
                                  {48, 48, Dtype::bf16, ScaleRule::linear},
                                  {7, 7, Dtype::e8m0, ScaleRule::mx_floor},
                                  {1, 50, Dtype::bf16, ScaleRule::linear},
                                  {1, 128, Dtype::f32, ScaleRule::linear},
                                  {128, 1, Dtype::f32, ScaleRule::linear},
                                  {128, 128, Dtype::f32, ScaleRule::linear},
                                  {1, 0, Dtype::f32, ScaleRule::linear},
                                  {1 << 20, 1, Dtype::f32, ScaleRule::linear},
                                  {1, 1 << 20, Dtype::bf16, ScaleRule::power_ceil},
                                  {1 << 20, 1 << 20, Dtype::bf16, ScaleRule::power_ceil}};
constexpr Dtype kFormats8[] = {Dtype::e4m3, Dtype::e5m2, Dtype::hif8, Dtype::int8};

Granularity granularity_of(int64_t rows, int64_t cols, Dtype scale) {
  using Kind = Granularity::Kind;
  if (cols == 0) return {Kind::row, 0, scale};
  const Kind kind = rows == 1 ? Kind::group : cols == 1 ? Kind::column_group : Kind::block;
  return {kind, std::max(rows, cols), scale};
}

void add_blocks(Table& table) {
  for (const Dtype format : kFormats8) {
    for (const BlockShape& block : kBlocks) {
      for (const Shape& shape : {Shape{1, 1}, Shape{17, 33}, Shape{128, 128}, Shape{300, 192},
                                 Shape{257, 130}, Shape{130, 1024}}) {
        const QuantizeAttrs q{.target = format_row(format).amax_target, .rule = block.rule};
        const OperandCase x =
            quantized(shape, format, granularity_of(block.rows, block.cols, block.scales));
        table.put_nonfinite(OpCode::quantize_groups, q, {tensor(shape, Fill::wide)},
                            {ResultType(x.type)});
        table.put(OpCode::dequantize, NoAttrs{}, {x, scales_of(x)});
      }
    }
  }
}

void add_rounded_quantizers(Table& table) {
  for (const Shape& shape : {Shape{1, 1}, Shape{17, 33}, Shape{64, 32}, Shape{300, 192}}) {
    const std::vector<OperandCase> operands = {tensor(shape, Fill::wide), scalar(0.01)};
    for (const Dtype source : {Dtype::f32, Dtype::bf16, Dtype::fp16}) {
      const QuantizeAttrs q{.target = 224, .rounding = Rounding::hr, .source = source};
      table.put_nonfinite(OpCode::quantize_both, q, operands, {Dtype::hif8});
      table.put_codes(OpCode::quantize, q, operands, {Dtype::hif8});
      table.put_codes(OpCode::quantize, q, operands, {ResultType(Dtype::hif8).transposed(16)});
    }
    for (const Rounding rounding : {Rounding::rtz, Rounding::ta})
      table.put_codes(OpCode::quantize_both, QuantizeAttrs{.rounding = rounding}, operands,
                      {Dtype::e4m3, ResultType(Dtype::e4m3).transposed(1)});
    table.put_codes(OpCode::quantize_both, QuantizeAttrs{.rounding = Rounding::rne}, operands,
                    {Dtype::hif8, ResultType(Dtype::hif8).transposed(1)});
    const QuantizeAttrs integer{.target = 127};
    table.put_nonfinite(OpCode::quantize, integer, operands, {Dtype::int8});
    table.put_codes(OpCode::quantize_both, integer, operands, {Dtype::int8});
    table.put(OpCode::dequantize, NoAttrs{}, {codes(shape, Dtype::int8), scalar(0.3)});
  }
}

void add_fakes(Table& table) {
  for (const Dtype format : kFormats8) {
    for (const int64_t group : {int64_t{1}, int64_t{32}, int64_t{50}, int64_t{1} << 40}) {
      for (const bool power : {false, true}) {
        const FakeQuantizeAttrs a{format, format_row(format).amax_target, group, power};
        table.put_nonfinite(OpCode::fake_quantize, a, {tensor({37, 300}, Fill::wide)});
        table.put(OpCode::fake_quantize, a, {tensor({3, 4096}, Fill::wide)});
      }
    }
  }
}

TEST(blocks, quantized_data_and_scales_have_the_bits_of_the_reference) {
  OCTET_GPU_OR_SKIP(gpu);
  Table table;
  add_blocks(table);
  run_table(table, *gpu);
}

TEST(blocks, other_roundings_and_integers_have_the_bits_of_the_reference) {
  OCTET_GPU_OR_SKIP(gpu);
  Table table;
  add_rounded_quantizers(table);
  run_table(table, *gpu);
}

TEST(blocks, quantized_and_dequantized_at_once_has_the_bits_of_the_reference) {
  OCTET_GPU_OR_SKIP(gpu);
  Table table;
  add_fakes(table);
  run_table(table, *gpu);
}

// A factor of a product: [outer, k] where it is K-major.
struct FactorCase {
  Dtype dtype;
  int64_t deep, wide;  // elements of a scale along k, and along the other axis; 0: one scale
};
constexpr int64_t kRow = -1;  // of `deep`: all of k

struct Product {
  int64_t m, n, k;
  FactorCase a, b;
};

std::vector<OperandCase> operands_of(const Product& p, const GemmAttrs& attrs, const OperandCase& c,
                                     Dtype scales) {
  const auto factor = [&](const FactorCase& f, const Shape& shape, bool k_major) {
    OperandCase x = codes(shape, f.dtype);
    x.fill = Fill::normal;
    // In E8M0 powers of two, whatever is drawn.
    if (f.deep == kRow)
      x.type.granularity = k_major ? Granularity{Granularity::Kind::row, 0, Dtype::f32}
                                   : Granularity{Granularity::Kind::column_group, p.k, Dtype::f32};
    if (f.deep > 0)
      x.type.granularity =
          granularity_of(k_major ? f.wide : f.deep, k_major ? f.deep : f.wide, scales);
    return x;
  };
  const Shape a = attrs.trans_a ? Shape{p.k, p.m} : Shape{p.m, p.k};
  const Shape b = attrs.trans_b ? Shape{p.n, p.k} : Shape{p.k, p.n};
  const OperandCase x = factor(p.a, a, !attrs.trans_a), y = factor(p.b, b, attrs.trans_b);
  return {x, y, c, scales_of(x), scales_of(y)};
}

// FP8's tensor cores keep fewer bits of a sum than f32 has.
constexpr double kFp8Sums = 1e-3, kSums = 1e-5;

void add_block_products(Table& table) {
  constexpr Dtype e4m3 = Dtype::e4m3, e5m2 = Dtype::e5m2, hif8 = Dtype::hif8;
  const Product products[] = {
      {144, 272, 384, {e4m3, 128, 1}, {e4m3, 128, 128}},  // forward
      {272, 144, 256, {e4m3, 128, 128}, {e4m3, 128, 1}},
      {256, 128, 320, {e4m3, 128, 1}, {e4m3, 128, 1}},  // wgrad; k is no multiple of 128
      {128, 256, 256, {e5m2, 128, 1}, {e4m3, 128, 128}},
      {128, 128, 256, {e4m3, 128, 128}, {e4m3, 128, 128}},  // decoded, as all that follow
      {37, 50, 70, {e4m3, 128, 1}, {e4m3, 128, 128}},
      {64, 96, 256, {e4m3, 32, 1}, {e4m3, 32, 1}},
      {64, 96, 256, {hif8, 64, 1}, {e5m2, 32, 32}},
      {64, 96, 256, {e4m3, 128, 1}, {hif8, 0, 0}},
      {64, 96, 256, {e5m2, 0, 0}, {e5m2, 0, 0}},
      {144, 272, 384, {e4m3, kRow, 1}, {e4m3, kRow, 1}},
      {144, 272, 384, {e4m3, kRow, 1}, {e4m3, 128, 128}},
      {37, 50, 70, {e4m3, kRow, 1}, {e5m2, kRow, 1}},
  };
  for (const Product& p : products) {
    for (const bool trans_a : {false, true}) {
      for (const bool trans_b : {false, true}) {
        for (const OperandCase& c :
             {none(), tensor({p.m, p.n}), typed({p.m, p.n}, Dtype::f32, Fill::normal)}) {
          const GemmAttrs attrs{.trans_a = trans_a, .trans_b = trans_b};
          for (const Dtype scales : {Dtype::e8m0, Dtype::f32})
            table.put(OpCode::gemm, attrs, operands_of(p, attrs, c, scales), kFp8Sums);
        }
      }
    }
  }
}

TEST(blocks, products_are_close_to_the_reference) {
  OCTET_GPU_OR_SKIP(gpu);
  Table table;
  add_block_products(table);
  run_table(table, *gpu);
}

// High-precision operands whose addend or result is of another type; the last has more rows than
// one run of sums.
void add_mixed_products(Table& table) {
  for (const Dtype factor : {Dtype::f32, Dtype::bf16, Dtype::fp16}) {
    for (const Dtype added : {Dtype::f32, Dtype::bf16, Dtype::fp16}) {
      for (const bool trans_a : {false, true}) {
        const Shape a = trans_a ? Shape{40, 33} : Shape{33, 40};
        table.put(OpCode::gemm, GemmAttrs{.trans_a = trans_a},
                  {typed(a, factor, Fill::normal), typed({40, 17}, factor, Fill::normal),
                   typed({33, 17}, added, Fill::normal)},
                  kSums);
      }
    }
    table.put(OpCode::gemm, GemmAttrs{},
              {typed({33, 40}, factor, Fill::normal), typed({40, 17}, factor, Fill::normal)},
              kSums);
  }
}

TEST(blocks, products_with_another_addend_or_result_are_close_to_the_reference) {
  OCTET_GPU_OR_SKIP(gpu);
  Table table;
  add_mixed_products(table);
  run_table(table, *gpu);
}

// High-precision operands may have scales too, one of them or both.
void add_scaled_products(Table& table) {
  for (const Dtype factor : {Dtype::f32, Dtype::bf16, Dtype::fp16}) {
    for (const auto& [scale_a, scale_b] :
         {std::pair(scalar(0.125), none()), std::pair(none(), scalar(16)),
          std::pair(scalar(0.125), scalar(16))}) {
      for (const OperandCase& c : {none(), typed({33, 17}, factor, Fill::normal),
                                   typed({33, 17}, Dtype::f32, Fill::normal)}) {
        table.put(OpCode::gemm, GemmAttrs{},
                  {typed({33, 40}, factor, Fill::normal), typed({40, 17}, factor, Fill::normal), c,
                   scale_a, scale_b},
                  kSums);
      }
    }
  }
}

TEST(blocks, scaled_products_of_wide_factors_are_close_to_the_reference) {
  OCTET_GPU_OR_SKIP(gpu);
  Table table;
  add_scaled_products(table);
  run_table(table, *gpu);
}

// GEMMs of one and two rows: factors alike, or codes beside 16 bits; columns that are no multiple
// of a block's, and up to three passes of its threads over k.
void add_few_rows(Table& table) {
  struct Factors {
    Dtype a, b;
  };
  for (const auto& [a, b] : {Factors{Dtype::bf16, Dtype::bf16}, Factors{Dtype::fp16, Dtype::fp16},
                             Factors{Dtype::e4m3, Dtype::e4m3}, Factors{Dtype::bf16, Dtype::e4m3},
                             Factors{Dtype::fp16, Dtype::e4m3}}) {
    for (const int64_t m : {1, 2}) {
      for (const int64_t k : {16, 48, 4096, 9008}) {
        for (const int64_t n : {1, 37}) {
          for (const OperandCase& c : {none(), tensor({m, n})}) {
            table.put(
                OpCode::gemm, GemmAttrs{.trans_b = true},
                {typed({m, k}, a, Fill::normal), typed({n, k}, b, Fill::normal), c,
                 is_quantized(a) ? scalar(0.125) : none(), is_quantized(b) ? scalar(16) : none()},
                kSums);
          }
        }
      }
    }
  }
}

// GEMMs of 16-bit rows with E4M3 weights, up to 64 rows; columns that are no multiple of a block's;
// slices of k with nothing in some, with a shorter last one, and deeper than what is read ahead.
void add_weight_only(Table& table) {
  struct Sizes {
    int64_t m, n, k;
  };
  for (const Dtype a : {Dtype::bf16, Dtype::fp16}) {
    for (const auto& [m, n, k] : {Sizes{3, 1, 64}, Sizes{16, 300, 320}, Sizes{17, 37, 1024},
                                  Sizes{33, 129, 576}, Sizes{64, 40, 2304}}) {
      for (const OperandCase& c : {none(), tensor({m, n})}) {
        table.put(OpCode::gemm, GemmAttrs{.trans_b = true},
                  {typed({m, k}, a, Fill::normal), typed({n, k}, Dtype::e4m3, Fill::normal), c,
                   none(), scalar(16)},
                  kSums);
      }
    }
  }
}

TEST(blocks, products_with_weights_that_stay_codes_are_close_to_the_reference) {
  OCTET_GPU_OR_SKIP(gpu);
  Table table;
  add_weight_only(table);
  run_table(table, *gpu);
}

TEST(blocks, a_weight_that_is_nan_makes_its_column_nan_and_no_other) {
  OCTET_GPU_OR_SKIP(gpu);
  constexpr int64_t kM = 5, kN = 40, kK = 320, kColumn = 29;
  for (const Dtype a : {Dtype::bf16, Dtype::fp16}) {
    Table table;
    table.put(OpCode::gemm, GemmAttrs{.trans_b = true},
              {typed({kM, kK}, a, Fill::normal), typed({kN, kK}, Dtype::e4m3, Fill::normal), none(),
               none(), scalar(16)},
              kSums);
    const OpCase& c = table.cases.front().c;
    Tensors inputs = case_inputs(c, 3);
    inputs.at("in1")[kColumn * kK + 131] = std::numeric_limits<double>::quiet_NaN();
    const Tensors results = run_plan(case_graph(c, Dtype::bf16), inputs, *gpu);
    const auto& y = results.begin()->second;
    ASSERT_EQ(y.size(), static_cast<size_t>(kM * kN));
    for (size_t i = 0; i < y.size(); ++i)
      EXPECT_EQ(std::isnan(y[i]), i % kN == kColumn) << "element " << i;
  }
}

TEST(blocks, products_of_few_rows_are_close_to_the_reference) {
  OCTET_GPU_OR_SKIP(gpu);
  Table table;
  add_few_rows(table);
  run_table(table, *gpu);
}

// 64 MiB of sums are 131,072 rows of 128.
TEST(blocks, sums_apart_in_several_runs_of_rows_are_close_to_the_reference) {
  OCTET_GPU_OR_SKIP(gpu);
  constexpr int64_t kRows = 131072 + 77;
  Table table;
  for (const bool trans_a : {false, true}) {
    const Shape a = trans_a ? Shape{2, kRows} : Shape{kRows, 2};
    table.put(OpCode::gemm, GemmAttrs{.trans_a = trans_a},
              {typed(a, Dtype::bf16, Fill::normal), typed({2, 128}, Dtype::bf16, Fill::normal),
               typed({kRows, 128}, Dtype::f32, Fill::normal)},
              kSums);
  }
  run_table(table, *gpu);
}

}  // namespace
}  // namespace octet::fusion
