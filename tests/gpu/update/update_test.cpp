// adamw_step on the GPU against the CPU's scalar formulas, one step from equal states: all bits
// with exact maths and without expansion, else all but one code in a thousand.
#include "backends/cpu/common/isa.h"
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
                                 {Dtype::hif8, Dtype::hif8}, {Dtype::de8s, Dtype::de8u},
                                 {Dtype::e4m3, Dtype::f32},  {Dtype::e5m2, Dtype::fp16}};

std::vector<AdamwSetup> setups(PowerMath math, bool expand) {
  std::vector<AdamwSetup> all;
  for (const auto& [m, v] : kMoments) {
    for (const Storage& w : kWeights) {
      if (v == Dtype::fp16 && w.stochastic) continue;  // not of both
      for (const int64_t n : {1, 1000, 1500, 4096}) {
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
    got.expect_amax_of_weights();
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

void expect_nearly_equal(const AdamwRun& want, const AdamwRun& got, const char* name) {
  const auto a = want.bytes(name), b = got.bytes(name);
  int64_t unequal = 0;
  for (size_t i = 0; i < a.size(); ++i) unequal += a[i] != b[i] ? 1 : 0;
  EXPECT_LE(unequal, 1 + std::ssize(a) / 1000) << want.setup().name << " " << name;
}

TEST(gpu_update, with_fast_powers_agrees_in_999_codes_of_1000) {
  OCTET_GPU_OR_SKIP(gpu);
  for (const AdamwSetup& setup : setups(PowerMath::fast, true)) {
    compare_steps(setup, *gpu, [&](const AdamwRun& want, const AdamwRun& got) {
      for (const char* name : {"m", "v"}) expect_nearly_equal(want, got, name);
    });
  }
}

AdamwSetup expanded(const Storage& storage, int64_t n) {
  AdamwSetup s{.name = std::string(dtype_name(storage.weight)) + " weight", .grad = Dtype::bf16};
  s.weight = storage.weight, s.master = storage.master, s.m = s.v = Dtype::e4m3, s.n = n;
  s.attrs.weight_decay = 0.1;
  s.attrs.expand_m = s.attrs.expand_v = true;
  s.attrs.stochastic_w = storage.stochastic;
  return s;
}

TEST(gpu_update, walks_a_tensor_that_its_grid_does_not_cover_at_once) {
  OCTET_GPU_OR_SKIP(gpu);
  for (const Storage& storage : {kWeights[1], kWeights[2]}) {
    AdamwRun want(expanded(storage, (int64_t{1} << 21) + 3 * 128 + 77), scalar_backend());
    AdamwRun got(want.setup(), *gpu);
    for (AdamwRun* run : {&want, &got}) run->step(test_gradient(run->setup().n, 1), {});
    for (const char* name : {"m", "v"}) expect_nearly_equal(want, got, name);
    if (storage.stochastic) expect_nearly_equal(want, got, "w");
    got.expect_amax_of_weights();
  }
}

// Groups of zeros, with some zeros, with values whose powers leave f32, and ordinary ones between.
std::vector<float> uneven_gradient(int64_t n, uint32_t step) {
  std::vector<float> g = test_gradient(n, step);
  constexpr float kScales[] = {0.0f, 1.0f, 1e15f, 1.0f, 1e-16f, 1e-30f, 1.0f};
  for (size_t i = 0; i < g.size(); ++i) {
    g[i] *= i / 128 % 7 == 3 && i % 2 == 0 ? 0.0f : kScales[i / 128 % 7];
  }
  return g;
}

TEST(gpu_update, takes_groups_of_zeros_and_of_magnitudes_near_the_ends) {
  OCTET_GPU_OR_SKIP(gpu);
  for (const Storage& storage : kWeights) {
    for (const float lr : {1e-3f, 0.0f}) {
      AdamwRun want(expanded(storage, 16384), scalar_backend()), got(want.setup(), *gpu);
      for (uint32_t t = 1; t <= 3; ++t) {
        got.take_states(want);
        for (AdamwRun* run : {&want, &got}) {
          run->step(uneven_gradient(16384, t), {.lr = lr, .attempt = t});
        }
        for (const char* name : {"m", "v"}) expect_nearly_equal(want, got, name);
        got.expect_amax_of_weights();
        if (lr == 0.0f) {
          EXPECT_EQ(got.bytes("w"), want.bytes("w")) << want.setup().name;
        }
      }
    }
  }
}

// The row that is chosen runs, and gives what the others give.
TEST(gpu_update, goes_by_the_next_row_where_one_is_struck) {
  OCTET_GPU_OR_SKIP(gpu);
  octet::Backend other = cuda::make_backend({.module = gpu_module(), .n_threads = 1});
  AdamwSetup codes = expanded(kWeights[1], 1500), wide = codes;
  wide.m = wide.v = Dtype::f32;
  wide.attrs.expand_m = wide.attrs.expand_v = false;
  const auto expect_rows = [&](std::string_view of_codes, std::string_view of_wide) {
    for (const auto& [setup, row] : {std::pair(codes, of_codes), std::pair(wide, of_wide)}) {
      AdamwRun want(setup, scalar_backend()), got(setup, other);
      EXPECT_EQ(got.row(), row);
      got.take_states(want);
      for (AdamwRun* run : {&want, &got}) run->step(test_gradient(setup.n, 1), {});
      for (const char* name : {"m", "v"}) expect_nearly_equal(want, got, name);
      got.expect_amax_of_weights();
    }
  };
  expect_rows("expanded", "wide");
  other.catalogue->strike("adamw_step expanded");
  expect_rows("groups", "wide");
  other.catalogue->strike("adamw_step groups");
  other.catalogue->strike("adamw_step wide");
  expect_rows("generic", "generic");
}

// A finite gradient whose square leaves f32 is a second moment of the largest finite value.
TEST(gpu_update, stores_what_overflowed_as_the_scalar_formulas_do) {
  OCTET_GPU_OR_SKIP(gpu);
  for (const auto& [math, expand] :
       {std::pair(PowerMath::exact, true), std::pair(PowerMath::fast, false),
        std::pair(PowerMath::fast, true)}) {
    for (const AdamwSetup& setup : setups(math, expand)) {
      if (!is_quantized(setup.v) || setup.n < 1000) continue;
      AdamwRun want(setup, scalar_backend()), got(setup, *gpu);
      for (uint32_t t = 1; t <= 3; ++t) {
        got.take_states(want);
        std::vector<float> gradient = test_gradient(setup.n, t);
        if (t == 1) gradient[3] = 1e20f, gradient[700] = -3e38f;
        for (AdamwRun* run : {&want, &got}) run->step(gradient, {.grad_scale = 1, .attempt = t});
        for (const char* name : {"m", "v"}) expect_nearly_equal(want, got, name);
        if (math == PowerMath::exact || !expand) {
          EXPECT_EQ(got.states(), want.states()) << setup.name;
        }
        const std::vector<float> v = got.moment(Moment::second);
        EXPECT_GT(v[3], 0x1p126f) << setup.name;
        EXPECT_GT(v[700], 0x1p126f) << setup.name;
      }
    }
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
    run.expect_amax_of_weights();
  }
}

}  // namespace
}  // namespace octet::cpu
