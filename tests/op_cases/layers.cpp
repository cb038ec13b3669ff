// Cases of products, layers and the update.
#include <fmt/format.h>

#include "ir/batch_size.h"

#include "op_cases/families.h"

namespace octet::op_cases {

void add_products(Cases& all) {
  const auto dot = [&](const char* name, Shape a, Shape b, DotAttrs attrs) {
    all.push_back({.name = name,
                   .op = OpCode::dot,
                   .attrs = std::move(attrs),
                   .operands = {tensor(std::move(a)), tensor(std::move(b))},
                   .tolerance = Tolerance::reduction});
  };
  dot("dot_matrices", {3, 4}, {4, 5}, {{}, {}, {1}, {0}});
  dot("dot_transposed", {4, 3}, {5, 4}, {{}, {}, {0}, {1}});
  dot("dot_vectors", {7}, {7}, {{}, {}, {0}, {0}});
  dot("dot_outer", {3}, {4}, {});
  dot("dot_batched", {2, 3, 4}, {2, 4, 5}, {{0}, {0}, {2}, {1}});
  dot("dot_two_contracted", {2, 3, 4, 5}, {5, 2, 4}, {{0}, {1}, {2, 3}, {2, 0}});
  dot("dot_late_batch", {3, 4, 2}, {5, 2, 4}, {{2}, {1}, {1}, {2}});
  dot("dot_crossed", {4, 3, 2}, {2, 4, 5}, {{}, {}, {2, 0}, {0, 1}});
  for (const bool trans_a : {false, true}) {
    for (const bool trans_b : {false, true}) {
      for (const bool with_c : {false, true}) {
        const auto put = [&](int64_t m, int64_t n, int64_t k) {
          const GemmAttrs attrs{.trans_a = trans_a, .trans_b = trans_b, .role = GemmRole::forward};
          OpCase c{.name = fmt::format("gemm_{}{}{}_{}x{}x{}", trans_a ? 't' : 'n',
                                       trans_b ? 't' : 'n', with_c ? "_c" : "", m, n, k),
                   .op = OpCode::gemm,
                   .attrs = attrs,
                   .operands = {tensor(trans_a ? Shape{k, m} : Shape{m, k}),
                                tensor(trans_b ? Shape{n, k} : Shape{k, n})},
                   .tolerance = Tolerance::reduction};
          if (with_c) c.operands.push_back(tensor({m, n}));
          all.push_back(std::move(c));
        };
        put(3, 5, 4);
        put(1, 1, 1);
        put(17, 33, 19);
      }
    }
  }
  for (const Shape& bias : {Shape{5}, Shape{1}, Shape{33}}) {
    const int64_t m = bias[0] == 1 ? 1 : 17, n = bias[0], k = 19;
    all.push_back({.name = fmt::format("gemm_bias_{}x{}x{}", m, n, k),
                   .op = OpCode::gemm,
                   .attrs = GemmAttrs{.trans_b = true, .role = GemmRole::forward},
                   .operands = {tensor({m, k}), tensor({n, k}), tensor(bias)},
                   .tolerance = Tolerance::reduction});
  }
  for (const bool trans_a : {false, true}) {
    for (const bool trans_b : {false, true}) {
      for (const bool with_c : {false, true}) {
        const auto put = [&](int64_t n_batch, int64_t m, int64_t n, int64_t k) {
          OpCase c{.name = fmt::format("batched_gemm_{}{}{}_{}x{}x{}x{}", trans_a ? 't' : 'n',
                                       trans_b ? 't' : 'n', with_c ? "_c" : "", n_batch, m, n, k),
                   .op = OpCode::batched_gemm,
                   .attrs = BatchedGemmAttrs{trans_a, trans_b, with_c ? -0.75 : 1.0},
                   .operands = {tensor(trans_a ? Shape{n_batch, k, m} : Shape{n_batch, m, k}),
                                tensor(trans_b ? Shape{n_batch, n, k} : Shape{n_batch, k, n})},
                   .tolerance = Tolerance::reduction};
          if (with_c) c.operands.push_back(tensor({n_batch, m, n}));
          all.push_back(std::move(c));
        };
        put(3, 5, 4, 6);
        if (trans_a || !trans_b) continue;
        put(1, 2, 16, 16);  // which one matrix multiplies as few rows
        put(2, 17, 33, 19);
      }
    }
  }
  for (const Shape& shape : {Shape{1, 1}, Shape{3, 5}, Shape{19, 33}}) {
    all.push_back({.name = "bias_add" + to_string(shape),
                   .op = OpCode::bias_add,
                   .operands = {tensor(shape), tensor({shape[1]})}});
    all.push_back({.name = "column_sum" + to_string(shape),
                   .op = OpCode::column_sum,
                   .operands = {tensor(shape)},
                   .tolerance = Tolerance::reduction});
  }
}

void add_norms(Cases& all) {
  const auto put = [&](const Shape& shape, bool weight, bool bias) {
    const auto name = [&](const char* op) {
      return op + to_string(shape) + (weight ? "_w" : "") + (bias ? "b" : "");
    };
    const Shape rows{shape[0]}, cols{shape[1]};
    OpCase forward{
        .name = name("layer_norm"),
        .op = OpCode::layer_norm,
        .attrs = NormAttrs{.eps = 1e-5},
        .operands = {tensor(shape), weight ? tensor(cols) : none(), bias ? tensor(cols) : none()},
        .tolerance = Tolerance::reduction};
    all.push_back(forward);
    if (!bias) {
      all.push_back(
          {.name = name("layer_norm_grad"),
           .op = OpCode::layer_norm_grad,
           .attrs = forward.attrs,
           .operands = {tensor(shape), tensor(shape), statistic(rows, {OpCode::layer_norm, {1}, 1}),
                        statistic(rows, {OpCode::layer_norm, {1}, 2})},
           .tolerance = Tolerance::reduction});
      if (weight) all.back().operands.push_back(tensor(cols));
      forward.name = name("rms_norm");
      forward.op = OpCode::rms_norm;
      forward.operands.pop_back();
      all.push_back(forward);
      all.push_back(
          {.name = name("rms_norm_grad"),
           .op = OpCode::rms_norm_grad,
           .attrs = forward.attrs,
           .operands = {tensor(shape), tensor(shape), statistic(rows, {OpCode::rms_norm, {1}, 1})},
           .tolerance = Tolerance::reduction});
      if (weight) all.back().operands.push_back(tensor(cols));
    }
  };
  for (const Shape& shape : {Shape{1, 3}, Shape{5, 8}, Shape{7, 33}}) {
    put(shape, false, false);
    put(shape, true, false);
    put(shape, true, true);
  }
}

void add_attention(Cases& all) {
  const auto rope = [&](const char* name, int64_t rows, RopeAttrs attrs) {
    all.push_back({.name = name,
                   .op = OpCode::rope,
                   .attrs = attrs,
                   .operands = {tensor({rows, attrs.heads * attrs.head_dim}),
                                integers({rows}, Fill::ids, 40)}});
  };
  rope("rope_small", 3, {.heads = 2, .head_dim = 4});
  rope("rope_one_pair", 1, {.heads = 1, .head_dim = 2});
  rope("rope_inverse", 5, {.heads = 3, .head_dim = 6, .theta = 500, .inverse = true});
  rope("rope_linear", 4, {.heads = 2, .head_dim = 8, .scaling = RopeScaling::linear, .factor = 4});
  rope("rope_llama3", 4,
       {.heads = 2,
        .head_dim = 16,
        .theta = 500,
        .scaling = RopeScaling::llama3,
        .factor = 8,
        .low_freq_factor = 1,
        .high_freq_factor = 4,
        .original_max_position = 64});
  rope("rope_dynamic", 4,
       {.heads = 2,
        .head_dim = 8,
        .theta = 100,
        .scaling = RopeScaling::dynamic,
        .factor = 2,
        .original_max_position = 16,
        .seq = 40});
  rope("rope_yarn", 4,
       {.heads = 2,
        .head_dim = 16,
        .theta = 500,
        .scaling = RopeScaling::yarn,
        .factor = 4,
        .original_max_position = 32,
        .truncate = false});
  rope("rope_longrope", 4,
       {.heads = 2,
        .head_dim = 6,
        .theta = 500,
        .scaling = RopeScaling::longrope,
        .divisors = {1, 1.5, 4}});
  rope("rope_wide", 9, {.heads = 2, .head_dim = 66});

  // Ranges of keys that queries see beside the mask, and the shape of a bias; empty: none.
  struct Seen {
    OperandCase begins = none(), ends = none();
    Shape bias = {};
  };
  const auto attention = [&](const std::string& name, AttentionAttrs a, const Seen& seen = {}) {
    a.scale = 1 / std::sqrt(static_cast<double>(a.head_dim));
    const int64_t rows = a.batch * a.q_len;
    const Shape q{rows, a.heads * a.head_dim};
    const Shape kv{a.batch * a.kv_len, a.kv_heads * a.head_dim};
    const OperandCase bias = seen.bias.empty() ? none() : tensor(seen.bias);
    all.push_back(
        {.name = "attention_" + name,
         .op = OpCode::attention,
         .attrs = a,
         .operands = {tensor(q), tensor(kv), tensor(kv), seen.begins, none(), seen.ends, bias},
         .tolerance = Tolerance::reduction});
    a.bias_gradient = !seen.bias.empty();
    const std::vector<int> forward = {1, 2, 3, 6, -1, 7, 8};
    all.push_back({.name = "attention_grad_" + name,
                   .op = OpCode::attention_grad,
                   .attrs = a,
                   .operands = {tensor(q), tensor(q), tensor(kv), tensor(kv),
                                derived(q, {OpCode::attention, forward, 0}),
                                statistic({rows * a.heads}, {OpCode::attention, forward, 1}),
                                seen.begins, seen.ends, bias},
                   .tolerance = Tolerance::reduction});
  };
  const auto documents = [&](int64_t rows, int64_t seq) {
    return Seen{.begins = integers({rows}, Fill::doc_starts, seq)};
  };
  const auto segments = [&](int64_t rows, int64_t seq) {
    Seen seen = documents(rows, seq);
    seen.ends = integers({rows}, Fill::doc_ends, seq);
    return seen;
  };
  const auto up_to = [&](int64_t rows, int64_t end, int64_t kv_len) {
    Seen seen;
    seen.ends = integers({rows}, Fill::key_ends, kv_len);
    seen.ends.value = static_cast<double>(end);
    return seen;
  };
  attention("causal",
            {.batch = 2, .q_len = 5, .kv_len = 5, .heads = 2, .kv_heads = 2, .head_dim = 3});
  attention("full", {.q_len = 4,
                     .kv_len = 4,
                     .heads = 2,
                     .kv_heads = 2,
                     .head_dim = 4,
                     .mask = AttentionMask::full});
  attention("grouped",
            {.batch = 2, .q_len = 3, .kv_len = 3, .heads = 4, .kv_heads = 2, .head_dim = 2});
  attention("one_kv_head", {.q_len = 7, .kv_len = 7, .heads = 3, .kv_heads = 1, .head_dim = 5});
  attention("one_token", {.batch = 3, .head_dim = 2});
  attention("documents",
            {.batch = 2, .q_len = 9, .kv_len = 9, .heads = 2, .kv_heads = 1, .head_dim = 3},
            documents(18, 9));
  attention("documents_ragged",
            {.q_len = 150, .kv_len = 150, .heads = 2, .kv_heads = 1, .head_dim = 9},
            documents(150, 150));
  attention("ragged", {.q_len = 67, .kv_len = 67, .heads = 2, .kv_heads = 1, .head_dim = 9});
  attention(
      "window",
      {.batch = 2, .q_len = 6, .kv_len = 6, .heads = 2, .kv_heads = 1, .head_dim = 3, .window = 2});
  attention("ragged_window",
            {.q_len = 131, .kv_len = 131, .heads = 2, .kv_heads = 1, .head_dim = 5, .window = 40});
  attention("capped", {.batch = 2,
                       .q_len = 6,
                       .kv_len = 6,
                       .heads = 2,
                       .kv_heads = 1,
                       .head_dim = 3,
                       .window = 3,
                       .softcap = 0.75});
  attention("capped_documents",
            {.q_len = 70, .kv_len = 70, .heads = 2, .kv_heads = 1, .head_dim = 5, .softcap = 0.5},
            documents(70, 70));
  AttentionAttrs both{.batch = 2, .q_len = 11, .kv_len = 11, .heads = 2, .kv_heads = 1};
  both.head_dim = 4, both.mask = AttentionMask::full;
  attention("segments", both, segments(22, 11));
  attention("padded", both, up_to(22, 8, 11));
  AttentionAttrs cross = both;
  cross.kv_len = 7;
  attention("cross", cross);
  attention("cross_padded", cross, up_to(22, 5, 7));
  attention("bias", both, {.bias = {2, 2, 11, 11}});
  attention("cross_bias", cross, {.bias = {1, 2, 11, 7}});
  attention("bias_of_keys", both, {.bias = {2, 1, 1, 11}});
  both.softcap = 0.75;
  attention("capped_bias", both, {.bias = {2, 1, 1, 11}});
  both.softcap = 0;
  both.window = 3;
  attention("full_window", both);
  AttentionAttrs behind = cross;
  behind.mask = AttentionMask::causal;
  behind.kv_len = 15, behind.window = 4;
  attention("more_keys_window", behind, {.bias = {1, 1, 11, 15}});

  const auto cached = [&](const std::string& name, AttentionAttrs a) {
    a.scale = 1 / std::sqrt(static_cast<double>(a.head_dim));
    const int64_t rows = a.batch * a.q_len, keys = a.batch * a.kv_len;
    const Shape q{rows, a.heads * a.head_dim}, kv{keys, a.kv_heads * a.head_dim};
    all.push_back({.name = "attention_" + name,
                   .op = OpCode::attention,
                   .attrs = a,
                   .operands = {tensor(q), tensor(kv), tensor(kv), none(),
                                integers({rows}, Fill::ids, a.kv_len)},
                   .tolerance = Tolerance::reduction,
                   .no_gradient = {0, 1, 2}});
    all.push_back({.name = "cache_write_" + name,
                   .op = OpCode::cache_write,
                   .attrs = CacheAttrs{.batch = a.batch, .capacity = a.kv_len},
                   .operands = {tensor(kv), tensor({a.batch, kv[1]}),
                                integers({a.batch}, Fill::ids, a.kv_len)},
                   .tolerance = Tolerance::exact,
                   .no_gradient = {0, 1}});
  };
  cached("cached", {.batch = 2, .q_len = 3, .kv_len = 5, .heads = 4, .kv_heads = 2, .head_dim = 3});
  cached("cached_capped", {.batch = 2,
                           .q_len = 3,
                           .kv_len = 5,
                           .heads = 4,
                           .kv_heads = 2,
                           .head_dim = 3,
                           .softcap = 0.75});
  cached("cached_long", {.q_len = 70, .kv_len = 300, .heads = 2, .kv_heads = 1, .head_dim = 5});
}

void add_activations(Cases& all) {
  for (const Shape& shape : {Shape{1}, Shape{3, 5}, Shape{7, 33}}) {
    const std::string size = to_string(shape);
    all.push_back({.name = "gated_act" + size,
                   .op = OpCode::gated_act,
                   .attrs = GatedActAttrs{},
                   .operands = {tensor(shape), tensor(shape)}});
    all.push_back({.name = "gated_act_grad" + size,
                   .op = OpCode::gated_act_grad,
                   .attrs = GatedActAttrs{},
                   .operands = {tensor(shape), tensor(shape), tensor(shape)}});
    for (const GeluKind kind : {GeluKind::erf, GeluKind::tanh}) {
      const std::string suffix = "_" + std::string(enum_name(kind)) + size;
      all.push_back({.name = "gelu" + suffix,
                     .op = OpCode::gelu,
                     .attrs = GeluAttrs{.kind = kind},
                     .operands = {tensor(shape)}});
      all.push_back({.name = "gelu_grad" + suffix,
                     .op = OpCode::gelu_grad,
                     .attrs = GeluAttrs{.kind = kind},
                     .operands = {tensor(shape), tensor(shape)}});
    }
  }
}

void add_losses(Cases& all) {
  const auto put = [&](const std::string& name, int64_t rows, int64_t classes, Fill fill,
                       double smoothing = 0) {
    const CrossEntropyAttrs attrs{.smoothing = smoothing};
    const OperandCase logits = tensor({rows, classes});
    const OperandCase labels = integers({rows}, fill, classes);
    all.push_back({.name = "cross_entropy_" + name,
                   .op = OpCode::cross_entropy,
                   .attrs = attrs,
                   .operands = {logits, labels, scalar(0.125)},
                   .tolerance = Tolerance::reduction,
                   .no_gradient = {2}});
    OperandCase dloss_of_rows = tensor({rows});
    dloss_of_rows.f32_only = true;
    for (const bool by_row : {false, true}) {
      all.push_back(
          {.name = "cross_entropy_grad_" + name + (by_row ? "_by_row" : ""),
           .op = OpCode::cross_entropy_grad,
           .attrs = attrs,
           .operands = {by_row ? dloss_of_rows : scalar(1.5), logits, labels,
                        statistic({rows}, {OpCode::cross_entropy, {1, 2, 4}, 1}), scalar(0.125)},
           .tolerance = Tolerance::reduction});
    }
  };
  put("all_valid", 4, 5, Fill::ids);
  put("some_ignored", 9, 7, Fill::labels);
  put("one_class", 3, 1, Fill::labels);
  put("ragged", 17, 67, Fill::labels);
  put("smoothed", 9, 7, Fill::labels, 0.1);
  put("smoothed_ragged", 17, 67, Fill::labels, 0.5);
}

void add_updates(Cases& all) {
  for (const double clip : {0.0, 0.5, 100.0}) {
    all.push_back({.name = fmt::format("global_norm_clip_{}", clip),
                   .op = OpCode::global_norm,
                   .operands = {scalar(clip), tensor({3, 5}), tensor({}), tensor({33})},
                   .tolerance = Tolerance::reduction});
  }
  const auto adamw = [&](const std::string& name, Shape shape, AdamwAttrs attrs, bool skip) {
    all.push_back(
        {.name = name,
         .op = OpCode::adamw_step,
         .attrs = attrs,
         .operands = {tensor(shape), tensor(shape), tensor(shape), tensor(shape, Fill::positive),
                      scalar(1e-2), scalar(0.271), scalar(0.142625), scalar(0.75),
                      scalar(skip ? 1 : 0, Dtype::boolean)}});
    for (const size_t i : {0, 2, 3}) all.back().operands[i].f32_only = true;
  };
  adamw("adamw_step_small", {3, 5}, {.weight_decay = 0.1}, false);
  adamw("adamw_step_ragged", {257}, {.beta1 = 0.8, .beta2 = 0.999, .eps = 1e-6}, false);
  adamw("adamw_step_one", {1}, {}, false);
  adamw("adamw_step_skipped", {3, 5}, {.weight_decay = 0.1}, true);
  for (const bool skip : {false, true}) {
    const auto name = [&](const char* base) {
      return std::string(base) + (skip ? "_skipped" : "");
    };
    for (const bool amax : {false, true}) {
      adamw(name(amax ? "adamw_step_remainder_amax" : "adamw_step_remainder"), {37},
            {.weight_decay = 0.1, .amax = amax}, skip);
      all.back().operands[0] = typed({37}, Dtype::bf16, Fill::normal);
      all.back().operands.push_back(typed({37}, Dtype::i16, Fill::remainder));
    }
    adamw(name("adamw_step_amax"), {9, 129}, {.weight_decay = 0.1, .amax = true}, skip);
  }
}

void add_stores(Cases& all) {
  for (const bool keeps : {false, true}) {
    all.push_back({.name = keeps ? "store_scaled_positive" : "store_scaled",
                   .op = OpCode::store_scaled,
                   .attrs = StoreScaledAttrs{.keeps_positive = keeps, .stream = 77, .seed = 3},
                   .operands = {typed({3, 129}, Dtype::f32, Fill::wide),
                                typed({}, Dtype::f32, Fill::constant), scalar(5, Dtype::u32)},
                   .tolerance = Tolerance::exact,
                   .typed_only = true});
    all.back().operands[1].value = keeps ? 0x1p25 : 0x1p-6;
  }
  const OperandCase hi = typed({37}, Dtype::bf16, Fill::normal),
                    lo = typed({37}, Dtype::i16, Fill::remainder),
                    wide = typed({37}, Dtype::f32, Fill::wide), attempt = scalar(5, Dtype::u32);
  const auto put = [&](const std::string& name, OpCode op, std::vector<OperandCase> operands,
                       const StateAttrs& attrs = {}) {
    all.push_back({.name = name,
                   .op = op,
                   .attrs = attrs,
                   .operands = std::move(operands),
                   .tolerance = Tolerance::exact,
                   .typed_only = true});
  };
  put("load_state_f32", OpCode::load_state, {wide});
  put("load_state_bf16", OpCode::load_state, {hi});
  put("load_state_remainder", OpCode::load_state, {hi, lo});
  for (const bool skip : {false, true}) {
    const OperandCase skips = scalar(skip ? 1 : 0, Dtype::boolean);
    const std::string end = skip ? "_skipped" : "";
    put("store_state_f32" + end, OpCode::store_state, {wide, skips, wide});
    put("store_state_bf16" + end, OpCode::store_state, {wide, skips, hi});
    put("store_state_drawn" + end, OpCode::store_state, {wide, skips, hi, attempt},
        {.stochastic = true, .stream = 77, .seed = 3});
    put("store_state_remainder" + end, OpCode::store_state, {wide, skips, hi, none(), lo});
  }
}

// Collectives of one rank alone; tests/cli/train/ranks_test.cpp has several.
void add_collectives(Cases& all) {
  all.push_back({.name = "take_shard",
                 .op = OpCode::take_shard,
                 .attrs = ShardAttrs{},
                 .operands = {tensor({3, 100})},
                 .tolerance = Tolerance::exact});
  all.push_back({.name = "all_gather",
                 .op = OpCode::all_gather,
                 .attrs = CollectiveAttrs{.ranks = 1, .reduction = {}, .shape = {3, 50}},
                 .operands = {tensor({256})},
                 .tolerance = Tolerance::exact});
  for (const OpCode op : {OpCode::reduce_scatter, OpCode::all_reduce}) {
    const bool is_all = op == OpCode::all_reduce;
    const std::string name = is_all ? "all_reduce" : "reduce_scatter";
    all.push_back(
        {.name = name, .op = op, .attrs = CollectiveAttrs{}, .operands = {tensor({3, 100})}});
    all.push_back({.name = name + "_into",
                   .op = op,
                   .attrs = CollectiveAttrs{},
                   .operands = {tensor({3, 100}), is_all ? tensor({3, 100}) : tensor({512})}});
  }
  for (const double clip : {0.0, 0.5}) {
    all.push_back({.name = fmt::format("sharded_norm_clip_{}", clip),
                   .op = OpCode::sharded_norm,
                   .attrs = CollectiveAttrs{},
                   .operands = {scalar(clip), tensor({3, 5}), tensor({}), tensor({333})},
                   .tolerance = Tolerance::reduction});
  }
}

}  // namespace octet::op_cases
