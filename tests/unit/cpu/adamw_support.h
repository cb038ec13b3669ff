// One parameter's adamw_step as a plan on a back end: its tensors by name, a step at a time.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "backends/cpu/backend.h"
#include "base/philox.h"
#include "formats/codec.h"
#include "ir/builder.h"
#include "ir/fixed_scale.h"
#include "math/adamw.h"
#include "math/moment.h"
#include "plan/kernel_row.h"
#include "plan/plan.h"
#include "runtime/executor.h"

namespace octet::cpu {

struct AdamwSetup {
  std::string name;
  Dtype grad = Dtype::f32;
  Dtype weight = Dtype::f32;
  std::optional<Dtype> master = {};
  Dtype m = Dtype::f32, v = Dtype::f32;
  AdamwAttrs attrs = {};
  int64_t n = 1000;
  int64_t group = 128;  // of quantized moments
};

struct AdamwScalars {
  float lr = 1e-3f, c1 = 0.1f, c2 = 0.05f, grad_scale = 0.5f;
  uint8_t found = 0;
  uint32_t attempt = 1;
};

class AdamwRun {
 public:
  AdamwRun(const AdamwSetup& setup, Backend& backend) : setup_(setup) {
    Graph graph = build(false);
    if (!backend.catalogue->choose(graph, graph.nodes.back())) graph = build(true);
    Layout layout;
    layout.add_inputs(graph);
    plan_ = std::make_unique<Plan>(make_plan(graph, layout, *backend.catalogue));
    arenas_ = std::make_unique<Arenas>(*backend.device, plan_->arena_bytes);
    for (int arena = 0; arena < kArenaCount; ++arena) {
      backend.device->fill_zero(arenas_->arena(static_cast<Arena>(arena)),
                                arenas_->bytes(static_cast<Arena>(arena)));
    }
    bound_ = std::make_unique<BoundPlan>(*plan_, *backend.catalogue, *arenas_);
    start_weights();
  }

  const AdamwSetup& setup() const { return setup_; }
  bool is_reference() const { return plan_->steps.at(0).kernel.reference; }
  std::string_view row() const { return plan_->steps.at(0).kernel.row->name; }

  void step(const std::vector<float>& grad, const AdamwScalars& s) {
    std::vector<std::byte> bytes(grad.size() * static_cast<size_t>(dtype_bytes(setup_.grad)));
    for (size_t i = 0; i < grad.size(); ++i) put(bytes.data(), i, grad[i], setup_.grad);
    bound_->write_input("g", bytes.data(), static_cast<int64_t>(bytes.size()));
    step_again(s);
  }
  // With the gradient of the step before.
  void step_again(const AdamwScalars& s) {
    bound_->write_input("lr", &s.lr, 4);
    bound_->write_input("c1", &s.c1, 4);
    bound_->write_input("c2", &s.c2, 4);
    bound_->write_input("grad_scale", &s.grad_scale, 4);
    bound_->write_input("found", &s.found, 1);
    bound_->write_input("attempt", &s.attempt, 4);
    if (has_scaled_v()) bound_->write_input("v_scale", &kScaleOfV, 4);
    bound_->run();
  }

  void set_f32_weights(const std::vector<float>& w) {
    bound_->write_input("w", w.data(), static_cast<int64_t>(w.size() * sizeof(float)));
  }

  // Goes on from another run's tensors.
  void take_states(const AdamwRun& other) {
    for (const auto& [name, data] : other.states()) {
      bound_->write_input(name, data.data(), static_cast<int64_t>(data.size()));
    }
  }

  // Every tensor that lasts, as its bytes.
  std::map<std::string, std::vector<uint8_t>> states() const {
    std::map<std::string, std::vector<uint8_t>> all;
    for (const char* name : {"w", "m", "v", "master", "m_meta", "v_meta"}) {
      if (bound_->has_input(name)) all[name] = bytes(name);
    }
    return all;
  }
  std::vector<uint8_t> bytes(const char* name) const {
    const TensorType& type = plan_->graph.type(plan_->graph.find_input(name)->value);
    std::vector<uint8_t> data(static_cast<size_t>(type.n_bytes()));
    bound_->read_output("next:" + std::string(name), data.data(), type.n_bytes());
    return data;
  }
  template <typename T>
  std::vector<T> words(const char* name) const {
    const auto raw = bytes(name);
    std::vector<T> result(raw.size() / sizeof(T));
    std::memcpy(result.data(), raw.data(), raw.size());
    return result;
  }

  // The amax and the flag that the last step gave are those of the weights that it left.
  void expect_amax_of_weights() const {
    if (!gives_amax()) return;
    float got = -1, want = 0;
    uint8_t got_flag = 2, want_flag = 0;
    bound_->read_output("amax", &got, 4);
    bound_->read_output("flag", &got_flag, 1);
    const auto raw = bytes("w");
    const auto size = static_cast<size_t>(dtype_bytes(setup_.weight));
    for (size_t i = 0; i < raw.size(); i += size) {
      uint32_t bits = 0;
      std::memcpy(&bits, raw.data() + i, size);
      const float x = std::abs(decode_wide(bits));
      if (std::isfinite(x)) want = std::max(want, x);
      if (!std::isfinite(x)) want_flag = 1;
    }
    EXPECT_EQ(got, want) << setup_.name;
    EXPECT_EQ(got_flag, want_flag) << setup_.name;
  }

  // The master weights: joined, or what stands for them.
  std::vector<float> weights() const {
    if (setup_.master == Dtype::f32) return words<float>("master");
    if (setup_.weight == Dtype::f32) return words<float>("w");
    const auto hi = words<uint16_t>("w");
    const auto lo = setup_.master ? words<int16_t>("master") : std::vector<int16_t>(hi.size());
    std::vector<float> joined(hi.size());
    for (size_t i = 0; i < hi.size(); ++i) joined[i] = join_master({hi[i], lo[i]});
    return joined;
  }

  MomentCoding coding(Moment moment) const {
    const bool first = moment == Moment::first;
    const AdamwAttrs& a = setup_.attrs;
    return {.dtype = first ? setup_.m : setup_.v,
            .moment = moment,
            .expand = first ? a.expand_m : a.expand_v,
            .stochastic = first ? a.stochastic_m : a.stochastic_v,
            .math = a.math == PowerMath::exact ? MathMode::exact : MathMode::fast};
  }
  std::vector<float> moment(Moment which) const {
    const char* name = which == Moment::first ? "m" : "v";
    const MomentCoding c = coding(which);
    if (c.dtype == Dtype::f32) return words<float>(name);
    std::vector<float> x(static_cast<size_t>(setup_.n));
    if (c.dtype == Dtype::bf16) {
      const auto codes = words<uint16_t>(name);
      for (size_t i = 0; i < x.size(); ++i) x[i] = f32_from_bf16(codes[i]);
      return x;
    }
    const auto codes = bytes(name);
    const auto meta = words<uint32_t>(which == Moment::first ? "m_meta" : "v_meta");
    decode_groups(c, setup_.group, meta, codes, x);
    return x;
  }

 private:
  float decode_wide(uint32_t bits) const {
    if (setup_.weight == Dtype::f32) return std::bit_cast<float>(bits);
    return f32_from_bf16(static_cast<uint16_t>(bits));
  }
  static constexpr float kScaleOfV = 0x1p-36f;
  bool has_scaled_v() const { return setup_.v == Dtype::fp16; }
  bool gives_amax() const { return setup_.weight != Dtype::fp16; }
  static void put(std::byte* to, size_t i, float x, Dtype dtype) {
    if (dtype == Dtype::f32) {
      std::memcpy(to + 4 * i, &x, 4);
    } else {
      const auto code =
          static_cast<uint16_t>(encode(dtype, x, Rounding::near, {.saturate = false}));
      std::memcpy(to + 2 * i, &code, 2);
    }
  }

  // apart: a v in FP16 is widened before the step and stored behind.
  Graph build(bool apart) const {
    Graph graph;
    graph.phase = Phase::typed;
    Builder b(graph);
    const Shape shape{setup_.n};
    std::vector<std::pair<std::string, ValueId>> kept;
    const auto state_of = [&](const char* name, const TensorType& type) {
      kept.emplace_back(name, b.input(InputKind::state, name, type));
      return kept.back().second;
    };
    const auto state = [&](const char* name, Dtype dtype, const Shape& dims) {
      return state_of(name, {dtype, dims});
    };
    const auto moment = [&](Dtype dtype) {
      TensorType type{dtype, shape};
      if (is_quantized(dtype))
        type.granularity = {Granularity::Kind::run, setup_.group, Dtype::u32};
      return type;
    };
    const auto scalar = [&](const char* name, Dtype dtype) {
      return b.input(InputKind::step_scalar, name, {dtype, {}});
    };
    const ValueId w = state("w", setup_.weight, shape);
    const ValueId g = b.input(InputKind::batch, "g", {setup_.grad, shape});
    const ValueId m = state_of("m", moment(setup_.m)), v = state_of("v", moment(setup_.v));
    const ValueId v_scale = has_scaled_v() ? scalar("v_scale", Dtype::f32) : kNoValue;
    const bool is_apart = apart && has_scaled_v();
    const Dtype f32 = Dtype::f32;
    std::vector<ValueId> operands = {
        w, g, m, is_apart ? b.emit_typed(OpCode::rescale, NoAttrs{}, {v, v_scale}, {f32})[0] : v};
    for (const char* name : {"lr", "c1", "c2", "grad_scale"}) {
      operands.push_back(scalar(name, Dtype::f32));
    }
    operands.push_back(scalar("found", Dtype::boolean));
    operands.push_back(setup_.master ? state("master", *setup_.master, shape) : kNoValue);
    operands.push_back(is_quantized(setup_.m) ? state_of("m_meta", scale_type(b.type(m)))
                                              : kNoValue);
    operands.push_back(is_quantized(setup_.v) ? state_of("v_meta", scale_type(b.type(v)))
                       : is_apart             ? kNoValue
                                              : v_scale);
    operands.push_back(scalar("attempt", Dtype::u32));
    AdamwAttrs attrs = setup_.attrs;
    attrs.amax = gives_amax();
    attrs.stochastic_v = attrs.stochastic_v || (has_scaled_v() && !is_apart);
    auto results = b.emit(OpCode::adamw_step, attrs, operands);
    if (is_apart) {
      ValueId& next = results[AdamwStep::next_v];
      next = b.emit1(OpCode::store_scaled,
                     StoreScaledAttrs{.keeps_positive = true,
                                      .stream = stream_of_v(attrs.stream),
                                      .seed = attrs.seed,
                                      .first = attrs.first},
                     {next, v_scale, operands.back()});
    }
    size_t next = 0;
    for (const auto& [name, value] : kept) {
      while (results[next] == kNoValue) ++next;
      b.output("next:" + name, results[next++], value);
    }
    if (!attrs.amax) return graph;
    b.output("amax", results[AdamwStep::amax]);
    b.output("flag", results[AdamwStep::nonfinite]);
    return graph;
  }

  void start_weights() {
    const RandomStream random{.name = name_hash("adamw_support")};
    const auto n = static_cast<size_t>(setup_.n);
    std::vector<std::byte> w(n * static_cast<size_t>(dtype_bytes(setup_.weight)));
    std::vector<std::byte> master(
        setup_.master ? n * static_cast<size_t>(dtype_bytes(*setup_.master)) : 0);
    for (size_t i = 0; i < n; ++i) {
      const float x = 0.02f * random.normal(i);
      if (setup_.master == Dtype::i16) {
        const MasterBits parts = split_master(x);
        std::memcpy(w.data() + 2 * i, &parts.hi, 2);
        std::memcpy(master.data() + 2 * i, &parts.lo, 2);
        continue;
      }
      put(w.data(), i, x, setup_.weight);
      if (setup_.master) std::memcpy(master.data() + 4 * i, &x, 4);
    }
    bound_->write_input("w", w.data(), std::ssize(w));
    if (setup_.master) bound_->write_input("master", master.data(), std::ssize(master));
  }

  AdamwSetup setup_;
  std::unique_ptr<Plan> plan_;
  std::unique_ptr<Arenas> arenas_;
  std::unique_ptr<BoundPlan> bound_;
};

// Gradients of one step: normals of scales that differ over the tensor, some of them zero.
inline std::vector<float> test_gradient(int64_t n, uint32_t step) {
  const RandomStream random{.name = name_hash("test_gradient"), .step = step};
  std::vector<float> g(static_cast<size_t>(n));
  for (size_t i = 0; i < g.size(); ++i) {
    const float scale = std::exp(0.7f * RandomStream{.name = 77}.normal(i));
    g[i] = i % 97 == 5 ? 0.0f : 1e-3f * scale * random.normal(i);
  }
  return g;
}

inline AdamwScalars scalars_of_step(uint32_t t, const AdamwAttrs& a) {
  return {.c1 = static_cast<float>(1 - std::pow(a.beta1, t)),
          .c2 = static_cast<float>(1 - std::pow(a.beta2, t)),
          .attempt = t};
}

}  // namespace octet::cpu
