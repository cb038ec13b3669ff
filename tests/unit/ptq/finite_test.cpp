// Calibration that gives NaN or Inf is refused by all methods alike, and what percentiles of zeros
// mean.
#include <gtest/gtest.h>

#include <limits>

#include "ptq/gptq.h"
#include "ptq/site.h"
#include "unit/base/error_of.h"
#include "unit/ptq/tiny_model.h"

namespace octet::ptq_finite_test {
namespace {

using test::ScratchFolder;

class Finite : public testing::Test {
 protected:
  std::string error_of(const std::string& folder, const PtqOptions& options,
                       NonfiniteWeights nonfinite = NonfiniteWeights::refused) {
    ModelSource source = find_model_source(posix_files(), folder);
    source.nonfinite = nonfinite;
    const std::string out = scratch_ / fmt::format("out-{}", n_++);
    const std::string error = test::error_of([&] {
      quantize_model(posix_files(),
                     {.source = source,
                      .options = checked(options),
                      .out = out,
                      .rows = test::tiny_rows(source.spec, 2, 16)},
                     backend_, {});
    });
    EXPECT_FALSE(posix_files().exists(join_path(out, "config.json")));
    return error;
  }

  ScratchFolder scratch_;
  Backend backend_ = cpu::make_backend(2, cpu::detect_isa());
  int n_ = 0;
};

const PtqOptions kMethods[] = {
    {.format = PtqFormat::e4m3, .method = PtqMethod::direct},
    {.format = PtqFormat::int8, .method = PtqMethod::direct},
    {.format = PtqFormat::e4m3, .method = PtqMethod::max},
    {.format = PtqFormat::int8, .method = PtqMethod::percentile},
    {.format = PtqFormat::hif8, .method = PtqMethod::algorithm1},
    {.format = PtqFormat::int8, .method = PtqMethod::smoothquant},
    {.format = PtqFormat::int8, .method = PtqMethod::gptq},
    {.format = PtqFormat::mxfp8, .method = PtqMethod::max},
    {.format = PtqFormat::e4m3, .method = PtqMethod::phase},
    {.format = PtqFormat::fp8_block, .method = PtqMethod::max},
    {.format = PtqFormat::e4m3, .method = PtqMethod::max, .activations = ActivationScaling::token},
};

TEST_F(Finite, calibration_is_asked_for_by_every_method_by_site_and_operand) {
  const ScratchFolder folder;
  test::put_tiny_model(folder, test::tiny_spec(ModelKind::llama), 3e38f);  // norms overflow
  for (const PtqOptions& options : kMethods) {
    EXPECT_EQ(error_of(folder.path(), options),
              "[ptq] layers.0.q_proj, k_proj, v_proj: expected an input that is finite in "
              "calibration, got Inf")
        << enum_name(options.format) << " " << enum_name(options.method);
  }
}

// One linear, or a sum.
struct Site {
  explicit Site(int64_t n_cols) : n_cols(n_cols) {}
  SiteResult quantized(const PtqOptions& options, Backend& backend, const Log& log = {}) {
    SiteInputs inputs{.site = site, .x = {x}, .exact_x = {x}};
    if (!exact_x.empty()) inputs.exact_x = {exact_x};
    if (!b.empty()) inputs.b = {b};
    if (!w.empty()) inputs.weights = {w};
    inputs.n_cols = n_cols;
    const PtqOptions how = checked(options);
    return SiteQuantizer(how, backend, log).quantize(inputs);
  }
  int64_t n_cols;
  std::vector<float> x, exact_x, b, w;
  PtqSite site = {.layer = "layers.1"};
};

TEST_F(Finite, operands_of_sums_and_of_the_unquantized_model_are_named) {
  Site sum(4);
  sum.x = {1, 2, 3, 4};
  sum.b = {1, 2, std::numeric_limits<float>::quiet_NaN(), 4};
  const PtqOptions residual{.format = PtqFormat::e4m3, .method = PtqMethod::max, .residual = true};
  EXPECT_EQ(test::error_of([&] { sum.quantized(residual, backend_); }),
            "[ptq] layers.1.residual.0: expected operand b that is finite in calibration, got NaN");
  Site linear(4);
  linear.site.linears = {{.name = "layers.1.down_proj", .weight = "w", .n_in = 4, .n_out = 1}};
  linear.x = {1, 2, 3, 4};
  linear.exact_x = {1, -std::numeric_limits<float>::infinity(), 3, 4};
  linear.w = {1, 1, 1, 1};
  EXPECT_EQ(test::error_of([&] {
              linear.quantized({.format = PtqFormat::e4m3, .method = PtqMethod::algorithm1},
                               backend_);
            }),
            "[ptq] layers.1.down_proj: expected an input in the unquantized model that is finite "
            "in calibration, got Inf");
}

// Finite inputs whose squares f32 does not hold: a factorization of NaN succeeds.
TEST_F(Finite, hessians_are_asked_for) {
  Site linear(4);
  linear.site.linears = {{.name = "layers.1.down_proj", .weight = "w", .n_in = 4, .n_out = 1}};
  linear.x = {1e30f, 2, 3, 4, 5, 6, 1e30f, 8};
  linear.w = {1, 1, 1, 1};
  EXPECT_EQ(test::error_of([&] {
              linear.quantized({.format = PtqFormat::int8, .method = PtqMethod::gptq}, backend_);
            }),
            "[gptq] expected a Hessian that f32 holds, got Inf: inputs are too large");
}

TEST_F(Finite, a_percentile_of_zero_is_the_largest_magnitude_with_a_word) {
  Site linear(4);
  linear.site.linears = {{.name = "layers.1.down_proj", .weight = "w", .n_in = 4, .n_out = 1}};
  linear.x.assign(400, 0.0f);
  linear.x[17] = -254;
  linear.w = {1, 1, 1, 1};
  std::string said;
  const Log log([&](LogLevel, const std::string& line) { said += line + "\n"; });
  const PtqOptions share{
      .format = PtqFormat::int8, .method = PtqMethod::percentile, .percentile = 90};
  const SiteResult result = linear.quantized(share, backend_, log);
  EXPECT_EQ(result.linears.front().input->scale, 2.0f);
  EXPECT_EQ(said,
            "[ptq] layers.1.down_proj: percentile 90 of the magnitudes is 0: taking the largest, "
            "254\n");
  said.clear();
  linear.x[17] = 0;  // nothing but zeros: the rule for empty tensors
  EXPECT_EQ(linear.quantized(share, backend_, log).linears.front().input->scale, 1.0f);
  EXPECT_EQ(said, "");
}

}  // namespace
}  // namespace octet::ptq_finite_test
