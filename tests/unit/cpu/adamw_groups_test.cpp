// adamw_step with every storage of moments and weights: the fast kernel against the scalar
// formulas.
#include "backends/cpu/isa.h"
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
        s.attrs = {.weight_decay = 0.1,
                   .group = turn % 7 == 3   ? 256
                            : turn % 7 == 5 ? 100
                                            : 128,
                   .expand_m = (flags & 1) != 0,
                   .expand_v = (flags & 1) != 0,
                   .stochastic_m = (flags & 2) != 0,
                   .stochastic_v = (flags & 2) != 0,
                   .stochastic_w = weight.stochastic,
                   .math = math,
                   .stream = static_cast<int64_t>(name_hash("layer.weight")),
                   .seed = 3};
        s.name = std::string(state.name) + (flags & 1 ? "+x" : "") + (flags & 2 ? "_sr" : "") +
                 " " + weight.name + " group " + std::to_string(s.attrs.group);
        setups.push_back(s);
      }
    }
  }
  return setups;
}

void run_steps(AdamwRun& run) {
  for (uint32_t t = 1; t <= kSteps; ++t) {
    run.step(test_gradient(run.setup().n, t), scalars_of_step(t, run.setup().attrs));
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

}  // namespace
}  // namespace octet::cpu
