// Launches of a step, as the plan chooses them without a GPU.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <set>

#include "backends/cuda/backend.h"
#include "backends/cuda/rows/update.h"
#include "backends/cuda/target/choose/attention.h"
#include "backends/cuda/target/choose/move.h"
#include "backends/cuda/target/choose/quantize.h"
#include "backends/cuda/target/choose/rows.h"
#include "backends/cuda/target/choose/update.h"
#include "compile/program.h"
#include "config/load.h"
#include "infer/model_spec.h"
#include "passes/precision/recipe.h"
#include "train/run_setup.h"

namespace octet::cuda {
namespace {

template <typename Params>
std::string launched(Params p) {
  choose_kernels(p);
  return fmt::format("{}", fmt::join(launches_of(p), " "));
}

RowOperand matrix(Dtype dtype, int32_t group = 0) {
  return {.at = 0, .dtype = dtype, .group = group};
}

// A layer whose result is quantized to E4M3 by row.
RowLayerParams quantized(RowLayer layer, RowOperand x) {
  RowLayerParams p;
  p.rows = 256, p.cols = 512;
  p.layer = layer;
  p.quantized = true;
  p.x = x;
  if (layer == RowLayer::gated_silu) p.up = x;
  p.codes.rows_at = 0;
  return p;
}

TEST(Launches, a_layer_has_two_passes_where_its_scale_is_made_of_the_result) {
  const RowOperand bf16 = matrix(Dtype::bf16), codes = matrix(Dtype::e4m3, 16);
  struct Case {
    RowLayer layer;
    RowOperand x;
    bool given, history, transposed;
    std::string_view launches;
  };
  using enum RowLayer;
  const Case cases[] = {
      {rms_norm, bf16, false, false, false, "norm_rows norm_rows"},
      {rms_norm, bf16, true, false, false, "norm_rows"},
      {rms_norm, bf16, true, false, true, "norm_rows layer_tiles"},
      {rms_norm, bf16, false, true, true, "norm_rows layer_tiles"},
      {rms_norm, codes, false, false, false, "norm_amax norm_codes"},
      {rms_norm, codes, false, true, false, "norm_once norm_codes"},
      {rms_norm, codes, true, false, false, "norm_once"},
      {rms_norm, codes, false, false, true, "norm_amax norm_tiles"},
      {rms_norm, matrix(Dtype::e5m2, 16), false, false, false, "norm_rows_any norm_rows_any"},
      {gated_silu, bf16, false, false, false, "act_rows act_rows"},
      {gated_silu, bf16, false, true, true, "layer_tiles layer_tiles"},
      {gated_silu, codes, false, false, false, "act_amax gated_rows"},
      {gated_silu, codes, true, false, true, "gated_tiles"},
      {gelu_tanh, codes, false, false, false, "act_amax act_rows"},
      {gelu_tanh, codes, false, false, true, "act_amax layer_tiles"},
  };
  for (const Case& c : cases) {
    RowLayerParams p = quantized(c.layer, c.x);
    if (c.given) p.codes.given_at = 3;
    if (c.history) p.codes.n_history = 16;
    if (c.transposed) p.codes.transposed_at = 1, p.codes.padded_rows = p.rows;
    EXPECT_EQ(launched(p), c.launches) << static_cast<int>(c.layer);
    p.generic = true;
    EXPECT_EQ(launched(p).find("_codes"), std::string::npos);
  }
}

TEST(Launches, a_step_of_adamw_leaves_what_fills_no_tile_to_the_next_kernel) {
  AdamwStepParams p;
  p.step = {.n = 128 * 5 + 3, .w = Dtype::bf16, .g = Dtype::bf16, .store = WeightStore::remainder};
  p.step.m = p.step.v = {.dtype = Dtype::e4m3, .expand = true};
  p.step.amax = true;
  EXPECT_EQ(launched(p), "step_tiles step_groups weight_amax");
  p.step.n = 128 * 5;
  EXPECT_EQ(launched(p), "step_tiles");  // which gives the amax
  p.step.m = p.step.v = {.dtype = Dtype::f32};
  p.step.n = 4 * 7 + 2;
  EXPECT_EQ(launched(p), "step_wide step_groups weight_amax");
  EXPECT_EQ(adamw_pieces(p.step, false).n, 1);
  EXPECT_EQ(adamw_pieces(p.step, false).all[0].row, AdamwRow::generic);
}

TEST(Launches, quantizers_turn_by_tiles_and_take_groups_as_they_divide_rows) {
  QuantizeParams codes{.rows = 32, .cols = 64};
  EXPECT_EQ(launched(codes), "quantize_rows");
  codes.transposed = true, codes.padded_rows = 32;
  EXPECT_EQ(launched(codes), "quantize_tiles");
  codes.rows = codes.padded_rows = 0;
  EXPECT_EQ(launched(codes), "");
  struct Case {
    int64_t cols, block_rows, block_cols;
    std::string_view kernel;
  };
  const Case cases[] = {{256, 1, 16, "quantize_even"},  {256, 1, 256, "quantize_even"},
                        {520, 1, 520, "quantize_row"},  {256, 128, 128, "quantize_tile"},
                        {256, 128, 1, "quantize_tile"}, {256, 32, 32, "quantize_panel"},
                        {250, 1, 16, "quantize_panel"}, {264, 1, 16, "quantize_panel"}};
  for (const Case& c : cases) {
    const BlockParams p{
        .rows = 256, .cols = c.cols, .block_rows = c.block_rows, .block_cols = c.block_cols};
    EXPECT_EQ(launched(p), c.kernel) << c.cols << " " << c.block_rows << " " << c.block_cols;
  }
}

TEST(Launches, copies_that_turn_or_pad_whole_sixteens_have_kernels_of_their_own) {
  StridedCopy turn{.rank = 2, .extent = {64, 32}, .src_stride = {1, 64}, .dst_stride = {32, 1}};
  StridedCopy pad{.rank = 2, .extent = {8, 16}, .src_stride = {16, 1}, .dst_stride = {32, 1}};
  const auto of = [](const FillParams& fill, StridedCopy copy) {
    choose_kernels(fill, {&copy, 1});
    return fmt::format("{}", fmt::join(launches_of(fill, {&copy, 1}), " "));
  };
  EXPECT_EQ(of({.n = 0, .bytes = 1}, turn), "turn_byte_tiles");
  EXPECT_EQ(of({.n = 0, .bytes = 2}, turn), "turn_tiles");
  turn.src_start = 8;
  EXPECT_EQ(of({.n = 0, .bytes = 1}, turn), "turn_tiles");
  EXPECT_EQ(of({.n = 256, .bytes = 1}, pad), "pad_columns");
  EXPECT_EQ(of({.n = 0, .bytes = 1}, pad), "copy_strided");
  pad.extent[1] = 15;
  EXPECT_EQ(of({.n = 256, .bytes = 1}, pad), "fill_bytes copy_strided");
}

TEST(Launches, attention_over_a_cache_gives_a_block_fewer_heads_where_there_are_few_blocks) {
  AttentionParams p{.batch = 1, .heads = 32, .kv_heads = 8, .head_dim = 128, .dtype = Dtype::bf16};
  p.cached = true;
  choose_kernels(p);
  EXPECT_EQ(p.keys_at_once, kManyKeys);
  EXPECT_EQ(p.heads_of_block, 1);
  for (const auto& [batch, heads] : {std::pair{10, 1}, {16, 2}, {64, 4}}) {
    p.batch = batch;
    choose_kernels(p);
    EXPECT_EQ(p.keys_at_once, kFewKeys);
    EXPECT_EQ(p.heads_of_block, heads) << batch;
  }
  p.cached = false, p.kv_len = p.q_len = 16;
  choose_kernels(p);
  EXPECT_EQ(p.form, AttentionForm::square);
  p.kv_len = 32;
  choose_kernels(p);
  EXPECT_EQ(p.form, AttentionForm::any);
}

TEST(Launches, every_step_of_training_names_its_kernels) {
  const Backend gpu = make_plan_backend({.n_threads = 1});
  std::set<std::string> untold;
  for (const Recipe* recipe : all_recipes()) {
    const std::string base = fmt::format("recipe.base={}", recipe->name);
    const RunConfig config =
        load_config(OCTET_SOURCE_DIR "/recipes/llama-3m.yaml", {"model.layers=2", base}).config;
    Program program(program_options(config, model_from_config(posix_files(), config)),
                    *gpu.catalogue);
    for (const std::string_view name : program.train_functions()) {
      for (const PlanStep& step : program.plan(name).steps) {
        if (step.kernel.launches.empty()) untold.insert(step.kernel.name);
      }
    }
  }
  // A state in another type may lie where it lay before, or not.
  std::erase_if(untold, [](const std::string& name) { return name.starts_with("store_state"); });
  EXPECT_EQ(fmt::format("{}", fmt::join(untold, "\n")), "");
}

}  // namespace
}  // namespace octet::cuda
