// Random graphs with scales that are said or measured anywhere: every op that a scale rule is
// written for, on values of one shape.
#pragma once

#include <array>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "backends/cpu/reference/reference.h"
#include "ir/custom_scale.h"

namespace octet::random_scales {

using reference::Tensors;

inline constexpr int64_t kRows = 6, kWidth = 8;
inline const Shape kShape = {kRows, kWidth};

struct Options {
  int n_ops = 10;
  double max_log2 = 2;  // of the RMS of inputs, above or below 0
  // Each input's scale is said or measured, no other is said, and ops are those that FP16 computes
  // to some digits where data are near 1.
  bool tells_sizes = false;
};

class Generator {
 public:
  Generator(uint64_t seed, const Options& options) : options_(options), random_(seed), b_(graph) {
    const TensorType index = {.dtype = Dtype::i32, .shape = {kRows}};
    rows_ = b_.input(InputKind::batch, "rows", index);
    for (int64_t i = 0; i < kRows; ++i)
      inputs["rows"].push_back(static_cast<double>(draw(0, kRows - 1)));
    for (int i = 0; i < 3; ++i) values_.push_back(fresh(kShape));
    for (int i = 0; i < options.n_ops; ++i) values_.push_back(scaled(op(drawn_op())));
    finish();
  }

  Graph graph;
  Tensors inputs;

 private:
  static constexpr int kOps = 34;

  int draw(int64_t low, int64_t high) {
    return static_cast<int>(std::uniform_int_distribution<int64_t>(low, high)(random_));
  }
  bool chance(double p) { return std::uniform_real_distribution<double>(0, 1)(random_) < p; }
  int drawn_op() {
    static constexpr int kSteady[] = {0, 2, 4, 6, 7, 10, 14, 15, 19, 20, 21, 23, 26};
    return options_.tells_sizes ? kSteady[draw(0, std::ssize(kSteady) - 1)] : draw(0, kOps - 1);
  }
  ValueId pick() {
    const int last = static_cast<int>(values_.size()) - 1;
    return values_[static_cast<size_t>(chance(0.5) ? last : draw(0, last))];
  }
  ValueId one(OpCode code, const Attrs& attrs, std::vector<ValueId> operands) {
    return b_.emit1(code, attrs, std::move(operands));
  }

  // A parameter of normals; its scale is said or measured at once, where sizes are told.
  ValueId fresh(const Shape& shape) {
    const std::string name = "x" + std::to_string(inputs.size());
    const int log2 =
        draw(static_cast<int64_t>(-options_.max_log2), static_cast<int64_t>(options_.max_log2));
    std::normal_distribution<float> normal;
    for (int64_t i = 0; i < n_elems(shape); ++i)
      inputs[name].push_back(std::ldexp(normal(random_), log2));
    const ValueId x = b_.input(InputKind::parameter, name, real_type(shape));
    if (!options_.tells_sizes) return scaled(x);
    return chance(0.5) ? one(OpCode::set_scale, ScaleAttrs{.log2 = log2}, {x})
                       : one(OpCode::dynamic_rescale, DynamicRescaleAttrs{}, {x});
  }

  // Perhaps with a scale of its own from here on, or of the gradient up to here.
  ValueId scaled(ValueId x) {
    if (values_.empty() || chance(0.4)) return x;
    const DynamicRescaleAttrs measured = {
        .norm = static_cast<RescaleNorm>(draw(0, 2)),
        .direction = chance(0.7) ? Direction::forward : Direction::backward};
    const int kind = options_.tells_sizes ? 2 : draw(0, 5);
    if (kind == 0 && chance(0.3)) return one(OpCode::stop_scaling, NoAttrs{}, {x});
    if (kind == 0 && chance(0.5)) {  // at a scale of run time
      Shape axes;
      for (size_t i = 0; i < b_.shape(x).size(); ++i) axes.push_back(static_cast<int64_t>(i));
      const ValueId scale = b_.scaled(b_.reduce_max(b_.unary(OpCode::abs, x), axes), 0.3);
      return one(OpCode::set_scale,
                 ScaleAttrs{.log2 = draw(-3, 3), .direction = measured.direction},
                 {x, one(OpCode::stop_gradient, NoAttrs{}, {scale})});
    }
    if (kind == 0) return one(OpCode::set_scale, ScaleAttrs{.log2 = draw(-8, 8)}, {x});
    if (kind == 1) return one(OpCode::rebalance, ScaleAttrs{.log2 = draw(-8, 8)}, {x});
    if (kind <= 3) return one(OpCode::dynamic_rescale, measured, {x});
    const std::string site = std::to_string(graph.nodes.size());
    if (kind == 4) {
      inputs[state_name(StateUse::rescale_factor, site)] = {
          chance(0.2) ? 0 : std::ldexp(1, draw(-9, 9))};
      return delayed_rescale(b_, x, site, measured);
    }
    const ValueId other = b_.shape(x) == kShape ? pick() : x;
    return custom_scale(
        b_, [](Builder& b, const std::vector<ValueId>& in) { return b.mul(in[0], in[1]); },
        {x, other},
        {.result = {.powers = {draw(-1, 2), draw(-1, 1)}, .log2 = draw(-3, 3)},
         .gradients = {{.powers = {1, 0, draw(-1, 1)}, .log2 = draw(-3, 3)},
                       {.powers = {1, draw(-1, 1), 0}, .log2 = draw(-3, 3)}}});
  }

  ValueId positive(ValueId x) { return b_.plus(b_.unary(OpCode::square, x), 0.5); }
  ValueId compressed(ValueId x) {
    return options_.tells_sizes ? b_.emit(OpCode::rms_norm, NormAttrs{}, {x})[0]
                                : b_.unary(OpCode::tanh, x);
  }
  ValueId less(ValueId a, ValueId b) { return one(OpCode::less, NoAttrs{}, {a, b}); }
  ValueId narrowed(ValueId x) {
    return one(OpCode::slice, SliceAttrs{{0, 0}, {kRows, kWidth / 2}, {1, 1}}, {x});
  }

  ValueId op(int kind) {
    const ValueId x = pick(), y = pick();
    switch (kind) {
      case 0:
        return b_.add(x, y);
      case 1:
        return b_.sub(x, y);
      case 2:
        return b_.mul(x, y);
      case 3:
        return b_.div(x, positive(y));
      case 4:
        return one(OpCode::maximum, NoAttrs{}, {x, y});
      case 5:
        return one(OpCode::minimum, NoAttrs{}, {x, b_.fill(kShape, draw(0, 1))});
      case 6:
        return b_.select(less(x, y), y, pick());
      case 7:
        return b_.unary(OpCode::square, x);
      case 8:
        return b_.unary(OpCode::sqrt, positive(x));
      case 9:
        return b_.unary(OpCode::rsqrt, positive(x));
      case 10:
        return b_.unary(OpCode::abs, b_.neg(x));
      case 11:
        return b_.unary(OpCode::log, positive(x));
      case 12:
        return b_.unary(static_cast<OpCode>(chance(0.5) ? OpCode::tanh : OpCode::sin), x);
      case 13:
        return b_.unary(OpCode::exp, b_.unary(OpCode::logistic, x));
      default:
        return kind < 20 ? linear(kind, x, y) : layer(kind, x, y);
    }
  }

  // Sums of products, rearrangements, reductions.
  ValueId linear(int kind, ValueId x, ValueId y) {
    switch (kind) {
      case 14:
        return b_.gemm(x, fresh({kWidth, kWidth}), {.trans_b = true});
      case 15:
        return one(OpCode::gemm, GemmAttrs{}, {x, fresh({kWidth, kWidth}), chance(0.5) ? y : x});
      case 16: {
        const ValueId scores = one(OpCode::dot, DotAttrs{{}, {}, {1}, {1}}, {x, y});
        return one(OpCode::dot, DotAttrs{{}, {}, {1}, {0}}, {scores, pick()});
      }
      case 17: {
        const OpCode code = chance(0.5) ? OpCode::reduce_sum : OpCode::reduce_max;
        return b_.broadcast(one(code, AxesAttrs{{1}}, {x}), kShape, {0});
      }
      case 18: {
        const double value = chance(0.3) ? 0 : chance(0.2) ? -1e4 : 0.75;
        const ValueId padded = one(OpCode::pad, PadAttrs{{1, 0}, {0, 2}, {0, 0}, value}, {x});
        return one(OpCode::slice, SliceAttrs{{0, 2}, {kRows, kWidth + 2}, {1, 1}}, {padded});
      }
      default:
        return one(OpCode::concatenate, AxisAttrs{1}, {narrowed(x), narrowed(y)});
    }
  }

  ValueId layer(int kind, ValueId x, ValueId y) {
    switch (kind) {
      case 20:
        return one(OpCode::bias_add, NoAttrs{}, {x, fresh({kWidth})});
      case 21: {
        std::vector<ValueId> operands = {x};
        if (chance(0.6)) operands.push_back(fresh({kWidth}));
        return b_.emit(OpCode::rms_norm, NormAttrs{}, operands)[0];
      }
      case 22: {
        std::vector<ValueId> operands = {x};
        if (chance(0.6)) operands.push_back(fresh({kWidth}));
        if (operands.size() > 1 && chance(0.6)) operands.push_back(fresh({kWidth}));
        return b_.emit(OpCode::layer_norm, NormAttrs{}, operands)[0];
      }
      case 23: {
        const AttentionAttrs a = {
            .batch = 1,
            .q_len = kRows,
            .kv_len = kRows,
            .heads = 2,
            .kv_heads = 1,
            .head_dim = kWidth / 2,
            .scale = 0.5,
            .mask = chance(0.5) ? AttentionMask::causal : AttentionMask::full};
        const ValueId k = narrowed(compressed(y));
        return b_.emit(OpCode::attention, a, {compressed(x), k, narrowed(pick())})[0];
      }
      case 24:
        return one(OpCode::gated_act, GatedActAttrs{}, {x, y});
      case 25:
        return one(OpCode::gelu, GeluAttrs{}, {x});
      case 26:
        return one(OpCode::embedding, NoAttrs{}, {x, rows_});
      case 27:
        return one(OpCode::rope, RopeAttrs{.heads = 2, .head_dim = kWidth / 2}, {x, rows_});
      case 28:
        return one(OpCode::integer_pow, PowerAttrs{.n = draw(0, 3)}, {b_.unary(OpCode::tanh, x)});
      case 29: {
        const OpCode code = chance(0.5) ? OpCode::reduce_min : OpCode::reduce_prod;
        const ValueId from = code == OpCode::reduce_min ? x : b_.unary(OpCode::sin, x);
        return b_.broadcast(one(code, AxesAttrs{{1}}, {from}), kShape, {0});
      }
      case 30:
        return one(OpCode::reverse, AxesAttrs{{chance(0.5) ? 0 : 1}}, {x});
      case 31: {
        const OpCode code = std::array{OpCode::not_equal, OpCode::less_equal, OpCode::greater,
                                       OpCode::greater_equal}[static_cast<size_t>(draw(0, 3))];
        const ValueId wide = one(code, NoAttrs{}, {x, y});
        const ValueId finite = b_.unary(OpCode::is_finite, y);
        return b_.select(wide, b_.select(finite, y, x), x);
      }
      case 32: {
        WindowAttrs window{.window = {3, 2}, .stride = {1, 1}, .low = {1, 0}, .high = {1, 1}};
        window.reduction = static_cast<WindowReduction>(draw(0, 2));
        return one(OpCode::reduce_window, window, {x});
      }
      case 33: {
        const auto batch = [&](ValueId v) { return b_.reshape(v, {2, kRows / 2, kWidth}); };
        const ValueId left = batch(compressed(x)), right = batch(y);
        const BatchedGemmAttrs attrs{.trans_b = true, .factor = 0.3};
        const ValueId scores = one(OpCode::batched_gemm, attrs, {left, right});
        const ValueId sums = one(OpCode::batched_gemm, BatchedGemmAttrs{}, {scores, right, left});
        return b_.reshape(sums, kShape);
      }
      default: {
        const ValueId scale = chance(0.5) ? b_.fill({}, 1.3) : b_.reduce_sum(fresh({4}), {0});
        return one(OpCode::rescale, NoAttrs{}, {x, scale});
      }
    }
  }

  // The mean cross entropy of the last value, and a sum over all.
  void finish() {
    const ValueId inv_n = b_.fill({}, 1.0 / kRows);
    ValueId logits = scaled(values_.back());
    if (options_.tells_sizes) logits = compressed(logits);
    const auto nll = b_.emit(OpCode::cross_entropy, CrossEntropyAttrs{}, {logits, rows_, inv_n});
    ValueId total = nll[0];
    for (const ValueId x : values_) {
      const ValueId part = b_.reduce_sum(b_.scaled(x, 1.0 / 64), {0, 1});
      total = b_.add(total, part);
    }
    b_.output("loss", options_.tells_sizes ? total : scaled(total));
    for (size_t i = 0; i < values_.size(); ++i)
      b_.output("data" + std::to_string(i),
                b_.emit(OpCode::data_scale, NoAttrs{}, {values_[i]})[0]);
  }

  Options options_;
  std::mt19937_64 random_;
  Builder b_;
  ValueId rows_ = kNoValue;
  std::vector<ValueId> values_;
};

}  // namespace octet::random_scales
