// adamw_step on the GPU against the CPU's scalar formulas, one step from equal states: all bits
// with exact maths and without expansion, else all but one code in a thousand.
#include "backends/cpu/isa.h"
#include "gpu/parity/gpu.h"
#include "unit/cpu/adamw_support.h"

namespace octet::cpu {
namespace {

struct Storage {
  Dtype weight;
  std::optional<Dtype> master;
  bool stochastic;
};
const Storage kWeights[] = {{Dtype::f32, {}, false},
                            {Dtype::bf16, Dtype::i16, false},
                            {Dtype::bf16, {}, true},
                            {Dtype::bf16, Dtype::f32, false}};
constexpr Dtype kMoments[][2] = {{Dtype::f32, Dtype::f32},   {Dtype::bf16, Dtype::bf16},
                                 {Dtype::e4m3, Dtype::e4m3}, {Dtype::e5m2, Dtype::e4m3},
                                 {Dtype::hif8, Dtype::hif8}, {Dtype::de8s, Dtype::de8u}};

std::vector<AdamwSetup> setups(PowerMath math, bool expand) {
  std::vector<AdamwSetup> all;
  for (const auto& [m, v] : kMoments) {
    for (const Storage& w : kWeights) {
      for (const int64_t n : {1, 1000, 4096}) {
        AdamwSetup s{.name = {}, .grad = n == 1000 ? Dtype::f32 : Dtype::bf16};
        s.weight = w.weight, s.master = w.master, s.m = m, s.v = v, s.n = n;
        s.attrs.weight_decay = 0.1;
        s.attrs.expand_m = s.attrs.expand_v = expand;
        s.attrs.stochastic_w = w.stochastic;
        s.attrs.math = math;
        s.name = std::string(dtype_name(m)) + " weight " + std::string(dtype_name(w.weight)) +
                 " n " + std::to_string(n);
        all.push_back(s);
      }
    }
  }
  return all;
}

octet::Backend& scalar_backend() {
  static cpu::Backend backend = make_backend(1, Isa::scalar);
  return backend;
}

// Runs three steps, each from the same states; calls check(want, got) after each.
template <typename Check>
void compare_steps(const AdamwSetup& setup, octet::Backend& gpu, Check&& check) {
  AdamwRun want(setup, scalar_backend()), got(setup, gpu);
  for (uint32_t t = 1; t <= 3; ++t) {
    got.take_states(want);
    const AdamwScalars scalars{.attempt = t};
    const std::vector<float> gradient = test_gradient(setup.n, t);
    want.step(gradient, scalars);
    got.step(gradient, scalars);
    check(want, got);
  }
}

TEST(gpu_update, equals_the_scalar_formulas_where_powers_are_exact_or_absent) {
  OCTET_GPU_OR_SKIP(gpu);
  for (const auto& [math, expand] :
       {std::pair(PowerMath::exact, true), std::pair(PowerMath::fast, false)}) {
    for (const AdamwSetup& setup : setups(math, expand)) {
      compare_steps(setup, *gpu, [&](const AdamwRun& want, const AdamwRun& got) {
        EXPECT_EQ(got.states(), want.states()) << setup.name;
      });
    }
  }
}

TEST(gpu_update, with_fast_powers_agrees_in_999_codes_of_1000) {
  OCTET_GPU_OR_SKIP(gpu);
  for (const AdamwSetup& setup : setups(PowerMath::fast, true)) {
    compare_steps(setup, *gpu, [&](const AdamwRun& want, const AdamwRun& got) {
      for (const char* name : {"m", "v"}) {
        const auto a = want.bytes(name), b = got.bytes(name);
        int64_t unequal = 0;
        for (size_t i = 0; i < a.size(); ++i) unequal += a[i] != b[i] ? 1 : 0;
        EXPECT_LE(unequal, 1 + std::ssize(a) / 1000) << setup.name << " " << name;
      }
    });
  }
}

TEST(gpu_update, changes_nothing_when_a_gradient_is_not_finite) {
  OCTET_GPU_OR_SKIP(gpu);
  for (const AdamwSetup& setup : setups(PowerMath::fast, true)) {
    AdamwRun run(setup, *gpu);
    run.step(test_gradient(setup.n, 1), {});
    const auto before = run.states();
    run.step(test_gradient(setup.n, 2), {.found = 1, .attempt = 2});
    EXPECT_EQ(run.states(), before) << setup.name;
  }
}

}  // namespace
}  // namespace octet::cpu
