// adamw_step with every storage of moments and weights: the fast kernel against the scalar
// formulas.
#include <array>

#include "backends/cpu/common/isa.h"
#include "unit/cpu/adamw_support.h"
#include "unit/cpu/kernels_support.h"

namespace octet::cpu {
namespace {

struct StateCase {
  const char* name;
  Dtype m, v;
};
constexpr StateCase kStates[] = {
    {"f32", Dtype::f32, Dtype::f32},        {"bf16", Dtype::bf16, Dtype::bf16},
    {"e4m3", Dtype::e4m3, Dtype::e4m3},     {"e5m2", Dtype::e5m2, Dtype::e5m2},
    {"hif8", Dtype::hif8, Dtype::hif8},     {"de8", Dtype::de8s, Dtype::de8u},
    {"e4m3_f32", Dtype::e4m3, Dtype::f32},  {"bf16_e5m2", Dtype::bf16, Dtype::e5m2},
    {"de8_e4m3", Dtype::de8s, Dtype::e4m3},
};

struct WeightCase {
  const char* name;
  Dtype weight;
  std::optional<Dtype> master;
  bool stochastic;
};
const WeightCase kWeights[] = {
    {"f32", Dtype::f32, {}, false},
    {"remainder", Dtype::bf16, Dtype::i16, false},
    {"bf16_sr", Dtype::bf16, {}, true},
    {"bf16_master", Dtype::bf16, Dtype::f32, false},
    {"fp16_master", Dtype::fp16, Dtype::f32, false},
};

constexpr uint32_t kSteps = 4;

// Every state with and without expansion and stochastic rounding; the weights take turns.
std::vector<AdamwSetup> all_setups(PowerMath math) {
  std::vector<AdamwSetup> setups;
  for (const StateCase& state : kStates) {
    for (int flags = 0; flags < 4; ++flags) {
      for (const WeightCase& weight : kWeights) {
        const size_t turn = setups.size();
        AdamwSetup s{.name = {},
                     .grad = turn % 2 == 0 ? Dtype::bf16 : Dtype::f32,
                     .weight = weight.weight,
                     .master = weight.master,
                     .m = state.m,
                     .v = state.v};
        s.group = std::array{128, 64, 128, 256, 128, 100, 128}[turn % 7];
        s.attrs = {.weight_decay = 0.1,
                   .expand_m = (flags & 1) != 0,
                   .expand_v = (flags & 1) != 0,
                   .stochastic_m = (flags & 2) != 0,
                   .stochastic_v = (flags & 2) != 0,
                   .stochastic_w = weight.stochastic,
                   .math = math,
                   .stream = static_cast<int64_t>(name_hash("layer.weight")),
                   .seed = 3};
        s.name = std::string(state.name) + (flags & 1 ? "+x" : "") + (flags & 2 ? "_sr" : "") +
                 " " + weight.name + " group " + std::to_string(s.group);
        setups.push_back(s);
      }
    }
  }
  return setups;
}

void run_steps(AdamwRun& run) {
  for (uint32_t t = 1; t <= kSteps; ++t) {
    run.step(test_gradient(run.setup().n, t), scalars_of_step(t, run.setup().attrs));
    run.expect_amax_of_weights();
  }
}

Backend& scalar_backend() {
  static Backend backend = make_backend(1, Isa::scalar);
  return backend;
}

Backend& fast_backend() {
  static Backend backend = make_backend(2, detect_isa());
  return backend;
}

TEST(adamw_groups, with_exact_maths_equals_the_scalar_formulas_bit_for_bit) {
  for (const AdamwSetup& setup : all_setups(PowerMath::exact)) {
    AdamwRun want(setup, scalar_backend());
    run_steps(want);
    ASSERT_TRUE(want.is_reference());
    for_each_target([&](const std::string& target) {
      AdamwRun got(setup, fast_backend());
      ASSERT_FALSE(got.is_reference()) << setup.name;
      run_steps(got);
      EXPECT_EQ(got.states(), want.states()) << setup.name << " " << target;
    });
  }
}

// Fast maths against exact maths, from the same states: one step each time.
struct Agreement {
  int64_t n_codes = 0, n_unequal = 0, n_far = 0, n_other_groups = 0;
  int64_t worst_weight_ulps = 0;
  double share_unequal() const {
    return static_cast<double>(n_unequal) / static_cast<double>(n_codes);
  }
};

// Codes in the order of their values.
int rank_of(Dtype dtype, uint8_t code) {
  if (dtype == Dtype::de8s || dtype == Dtype::de8u) return code;
  int rank = 0;
  const float value = decode(dtype, code);
  for (uint32_t other = 0; other < 256; ++other) rank += decode(dtype, other) < value ? 1 : 0;
  return rank;
}

// Without groups that are expanded by another k: where the smallest m is what two terms nearly
// cancel to, its last bits choose.
void compare_codes(const AdamwRun& a, const AdamwRun& b, const std::string& name, Dtype dtype,
                   Agreement& result) {
  const auto x = a.bytes(name.c_str()), y = b.bytes(name.c_str());
  const auto meta_x = a.words<uint32_t>((name + "_meta").c_str());
  const auto meta_y = b.words<uint32_t>((name + "_meta").c_str());
  for (size_t g = 0; g < meta_x.size(); ++g)
    result.n_other_groups += meta_k16(meta_x[g]) != meta_k16(meta_y[g]) ? 1 : 0;
  for (size_t i = 0; i < x.size(); ++i) {
    if (meta_k16(meta_x[i / 128]) != meta_k16(meta_y[i / 128])) continue;
    ++result.n_codes;
    if (x[i] == y[i]) continue;
    ++result.n_unequal;
    result.n_far += std::abs(rank_of(dtype, x[i]) - rank_of(dtype, y[i])) > 1 ? 1 : 0;
  }
}

int64_t ulps(float a, float b) {
  const auto line = [](float x) {
    const auto bits = static_cast<int64_t>(bits_of(x) & kF32Magnitude);
    return x < 0 ? -bits : bits;
  };
  return std::abs(line(a) - line(b));
}

TEST(adamw_groups, with_fast_maths_agrees_with_exact_in_999_codes_of_1000) {
  for (const StateCase& state : kStates) {
    if (!is_quantized(state.m) || !is_quantized(state.v)) continue;
    for_each_target([&](const std::string& target) {
      AdamwSetup setup{.name = state.name,
                       .grad = Dtype::f32,
                       .weight = Dtype::f32,
                       .m = state.m,
                       .v = state.v,
                       .n = 40000};
      setup.attrs = {.expand_m = true, .expand_v = true};
      AdamwRun fast(setup, fast_backend());
      setup.attrs.math = PowerMath::exact;
      AdamwRun exact(setup, fast_backend());
      Agreement agreement;
      for (uint32_t t = 1; t <= 3; ++t) {
        exact.take_states(fast);
        for (AdamwRun* run : {&fast, &exact}) {
          run->step(test_gradient(setup.n, t), scalars_of_step(t, setup.attrs));
        }
        EXPECT_EQ(fast.bytes("m_meta").size(), exact.bytes("m_meta").size());
        compare_codes(fast, exact, "m", state.m, agreement);
        compare_codes(fast, exact, "v", state.v, agreement);
        const auto w_fast = fast.weights(), w_exact = exact.weights();
        for (size_t i = 0; i < w_fast.size(); ++i) {
          if (std::abs(w_exact[i]) < 1e-3f) continue;  // of its own size, not of the update's
          agreement.worst_weight_ulps =
              std::max(agreement.worst_weight_ulps, ulps(w_fast[i], w_exact[i]));
        }
      }
      EXPECT_LE(agreement.share_unequal(), 0.001) << state.name << " " << target;
      EXPECT_EQ(agreement.n_far, 0) << state.name << " " << target;
      EXPECT_LE(agreement.n_other_groups, 1) << state.name << " " << target;  // of 1878
      EXPECT_LE(agreement.worst_weight_ulps, 2) << state.name << " " << target;
    });
  }
}

// Elements 3 and 700 have gradients whose squares leave f32.
std::vector<float> vast_gradient(int64_t n, uint32_t step) {
  std::vector<float> g = test_gradient(n, step);
  if (step == 1) g[3] = 1e20f, g[700] = -3e38f;
  return g;
}

TEST(adamw_groups, a_gradient_whose_square_overflows_moves_its_weight_by_less_than_ever_after) {
  for (const PowerMath math : {PowerMath::exact, PowerMath::fast}) {
    for (const AdamwSetup& setup : all_setups(math)) {
      for (Backend* backend : {&scalar_backend(), &fast_backend()}) {
        AdamwRun run(setup, *backend);
        const std::vector<float> start = run.weights();
        for (uint32_t t = 1; t <= 3; ++t) {
          AdamwScalars scalars = scalars_of_step(t, setup.attrs);
          scalars.grad_scale = 1;
          run.step(vast_gradient(setup.n, t), scalars);
          const std::vector<float> v = run.moment(Moment::second), w = run.weights();
          for (const size_t i : {size_t{3}, size_t{700}}) {
            EXPECT_GT(v[i], 0x1p126f) << setup.name << " step " << t;
            EXPECT_TRUE(std::isfinite(v[i])) << setup.name << " step " << t;
            EXPECT_LT(std::abs(w[i] - start[i]), 0.01f) << setup.name << " step " << t;
          }
        }
      }
    }
  }
}

// The element moves again, by no more than a step of lr.
TEST(adamw_groups, a_second_moment_that_overflowed_decays_where_it_is_in_no_codes) {
  for (const AdamwSetup& setup : all_setups(PowerMath::fast)) {
    if (is_quantized(setup.v) || is_quantized(setup.m)) continue;
    for (Backend* backend : {&scalar_backend(), &fast_backend()}) {
      AdamwRun run(setup, *backend);
      std::vector<float> w = run.weights(), v = run.moment(Moment::second);
      for (uint32_t t = 1; t <= 40; ++t) {
        AdamwScalars scalars = scalars_of_step(t, setup.attrs);
        scalars.grad_scale = 1;
        run.step(vast_gradient(setup.n, t), scalars);
        const std::vector<float> next = run.weights(), next_v = run.moment(Moment::second);
        for (const size_t i : {size_t{3}, size_t{700}}) {
          EXPECT_LT(std::abs(next[i] - w[i]), 0.01f) << setup.name << " step " << t;
          if (t > 1 && setup.attrs.beta2 < 0.99) {
            EXPECT_LT(next_v[i], v[i]) << setup.name;
          }
        }
        w = next, v = next_v;
      }
    }
  }
}

TEST(adamw_groups, gives_the_same_bits_for_any_number_of_threads) {
  std::vector<std::unique_ptr<Backend>> backends;
  for (const int threads : kThreadCounts) {
    backends.push_back(std::make_unique<Backend>(make_backend(threads, detect_isa())));
  }
  const auto setups = all_setups(PowerMath::fast);
  for (size_t i = 0; i < setups.size(); i += 3) {
    AdamwSetup setup = setups[i];
    setup.n = 2 * 16384 + 77;
    const auto gradient = test_gradient(setup.n, 1);
    std::map<std::string, std::vector<uint8_t>> want;
    for (const auto& backend : backends) {
      AdamwRun run(setup, *backend);
      run.step(gradient, scalars_of_step(1, setup.attrs));
      if (want.empty()) want = run.states();
      EXPECT_EQ(run.states(), want) << setup.name;
    }
  }
}

TEST(adamw_groups, a_refused_step_changes_no_byte_and_the_next_goes_on) {
  for (const AdamwSetup& setup : all_setups(PowerMath::fast)) {
    for (Backend* backend : {&scalar_backend(), &fast_backend()}) {
      AdamwRun run(setup, *backend);
      run_steps(run);
      const auto before = run.states();
      for (const float bad : {NAN, INFINITY, -INFINITY}) {
        std::vector<float> gradient = test_gradient(setup.n, 9);
        gradient[17] = bad;
        AdamwScalars scalars = scalars_of_step(5, setup.attrs);
        scalars.found = 1;
        run.step(gradient, scalars);
        run.expect_amax_of_weights();
        EXPECT_EQ(run.states(), before) << setup.name;
      }
      run.step(test_gradient(setup.n, 10), scalars_of_step(5, setup.attrs));
      run.expect_amax_of_weights();
      EXPECT_NE(run.states().at("w"), before.at("w")) << setup.name;
      EXPECT_NE(run.states().at("v"), before.at("v")) << setup.name;
    }
  }
}

TEST(adamw_groups, a_remainder_weight_walks_as_an_f32_master) {
  for (const StateCase& state : kStates) {
    AdamwSetup wide{.name = state.name, .m = state.m, .v = state.v};
    wide.attrs = {.weight_decay = 0.1, .expand_m = true, .expand_v = true};
    AdamwSetup split = wide;
    split.weight = Dtype::bf16;
    split.master = Dtype::i16;
    AdamwSetup beside = split;
    beside.master = Dtype::f32;
    AdamwRun a(wide, fast_backend()), b(split, fast_backend()), c(beside, fast_backend());
    for (AdamwRun* run : {&a, &b, &c}) run_steps(*run);
    EXPECT_EQ(a.weights(), b.weights()) << state.name;
    EXPECT_EQ(a.weights(), c.weights()) << state.name;
    const auto narrow = c.words<uint16_t>("w");
    for (size_t i = 0; i < narrow.size(); ++i) {
      EXPECT_EQ(narrow[i], f32_to_bf16(a.weights()[i])) << state.name;
      if (HasFailure()) return;
    }
  }
}

// Weights that only stochastic rounding can move: steps far below half a place of bf16.
TEST(adamw_groups, stochastic_weights_follow_the_master_in_the_mean) {
  AdamwSetup setup{.name = "walk", .weight = Dtype::bf16, .n = 4096};
  setup.attrs = {.beta1 = 0, .beta2 = 0, .stochastic_w = true, .stream = 12};
  AdamwRun run(setup, fast_backend());
  const auto before = run.weights();
  constexpr int kWalk = 200;
  for (uint32_t t = 1; t <= kWalk; ++t) {
    run.step(std::vector<float>(4096, -1.0f), {.lr = 1e-6f, .c1 = 1, .c2 = 1, .attempt = t});
  }
  const auto after = run.weights();
  double moved = 0;
  for (size_t i = 0; i < after.size(); ++i) moved += after[i] - before[i];
  EXPECT_NEAR(moved / 4096 / (kWalk * 1e-6), 1.0, 0.05);
}

}  // namespace
}  // namespace octet::cpu
