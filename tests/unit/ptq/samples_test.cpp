// Searches look at all calibration samples, whatever their number: against plain loops in double.
#include <gtest/gtest.h>

#include <limits>
#include <set>

#include "ptq/site.h"
#include "unit/base/error_of.h"
#include "unit/ptq/tiny_model.h"

namespace octet::ptq_samples_test {
namespace {

constexpr int64_t kIn = 24, kOut = 10, kSeq = 4, kSamples = 8;

class CountedTokens : public TokenSource {
 public:
  explicit CountedTokens(int64_t n) : n_(n) {}
  int64_t n_tokens() const override { return n_; }
  void read(int64_t first, std::span<int32_t> tokens, std::span<uint8_t> flags) const override {
    for (size_t i = 0; i < tokens.size(); ++i) {
      tokens[i] = static_cast<int32_t>(first) + static_cast<int32_t>(i);
      flags[i] = 0;
    }
  }
  uint64_t identity() const override { return 1; }

 private:
  int64_t n_;
};

TEST(CalibrationRows, are_as_many_as_asked_for_in_batches_of_which_the_last_may_be_smaller) {
  const TokenStream stream({std::make_shared<CountedTokens>(20 * kSeq + 3)});
  const auto sizes = [&](int64_t samples) {
    std::vector<int64_t> all;
    int32_t next = 0;
    for (const Batch& batch : calibration_rows(stream, samples, kSeq)) {
      all.push_back(batch.batch);
      for (const int32_t token : batch.ints("tokens")) EXPECT_EQ(token, next++);
    }
    return all;
  };
  EXPECT_EQ(sizes(13), (std::vector<int64_t>{8, 5}));
  EXPECT_EQ(sizes(16), (std::vector<int64_t>{8, 8}));
  EXPECT_EQ(sizes(3), (std::vector<int64_t>{3}));
  EXPECT_EQ(sizes(64), (std::vector<int64_t>{8, 8, 4}));  // all that there are
}

// A linear behind a norm, whose inputs grow from sample to sample, each in a channel of its own.
struct Linear {
  explicit Linear(int64_t n_samples) : n_samples(n_samples) {
    const RandomStream random{.name = name_hash("samples")};
    for (int64_t i = 0; i < kOut * kIn; ++i)
      w.push_back(0.05f * random.normal(static_cast<uint64_t>(i)));
    for (int64_t i = 0; i < n_samples * kSeq * kIn; ++i) {
      const int64_t sample = i / (kSeq * kIn);
      const float size = i % kIn == sample % kIn ? 6.0f * static_cast<float>(sample) : 1.0f;
      x.push_back(size * random.normal(static_cast<uint64_t>(i) + 100'000));
      exact_x.push_back(x.back() + 0.05f * random.normal(static_cast<uint64_t>(i) + 900'000));
    }
    site.linears = {{.name = "layers.0.q_proj", .weight = "w", .n_in = kIn, .n_out = kOut}};
    site.norm.weight = "norm";
  }

  SiteResult quantized(const PtqOptions& options, Backend& backend) {
    std::vector<float> values = x;  // smoothing divides it
    SiteInputs inputs{.site = site, .weights = {w}, .norm_weight = std::vector<float>(kIn, 1.0f)};
    inputs.round_norm = [](std::span<float>) {};
    inputs.n_cols = kIn;
    for (int64_t first = 0; first < n_samples; first += kSamples) {
      const auto at = static_cast<size_t>(first * kSeq * kIn);
      const auto n = std::min(values.size() - at, static_cast<size_t>(kSamples * kSeq * kIn));
      inputs.x.push_back(std::span(values).subspan(at, n));
      inputs.exact_x.push_back(std::span(exact_x).subspan(at, n));
    }
    return SiteQuantizer(options, backend).quantize(inputs);
  }

  // |from w^T - q_x q_w^T|^2 over all samples.
  double error(const std::vector<float>& from, const std::vector<float>& q_x,
               const std::vector<float>& q_w) const {
    double sum = 0;
    for (size_t r = 0; r < x.size() / kIn; ++r) {
      for (size_t o = 0; o < kOut; ++o) {
        double d = 0;
        for (size_t i = 0; i < kIn; ++i) {
          d += static_cast<double>(from[r * kIn + i]) * static_cast<double>(w[o * kIn + i]);
          d -= static_cast<double>(q_x[r * kIn + i]) * static_cast<double>(q_w[o * kIn + i]);
        }
        sum += d * d;
      }
    }
    return sum;
  }

  int64_t n_samples;
  std::vector<float> w, x, exact_x;
  PtqSite site;
};

std::vector<float> rounded(std::vector<float> values, Dtype dtype, float scale) {
  for (float& value : values) value = decode(dtype, encode(dtype, value * (1 / scale))) * scale;
  return values;
}

class Samples : public testing::Test {
 protected:
  Backend backend_ = cpu::make_backend(2, cpu::detect_isa());
};

TEST_F(Samples, all_decide_the_exponents_of_algorithm_1) {
  for (const PtqFormat format : {PtqFormat::e4m3, PtqFormat::hif8, PtqFormat::e5m2}) {
    const Dtype dtype = element_dtype(format);
    std::set<std::pair<float, double>> found;
    for (const int64_t n_samples : {8, 16, 64, 13}) {
      Linear linear(n_samples);
      const PtqOptions options = checked({.format = format, .method = PtqMethod::algorithm1});
      const SiteResult result = linear.quantized(options, backend_);
      const QuantizedLinear& q = result.linears.front();
      double least = std::numeric_limits<double>::infinity();
      for (int ea = kMinExponent; ea <= kMaxExponent; ++ea) {
        const auto q_x = rounded(linear.x, dtype, std::exp2f(static_cast<float>(-ea)));
        for (int ew = kMinExponent; ew <= kMaxExponent; ++ew) {
          const auto q_w = rounded(linear.w, dtype, std::exp2f(static_cast<float>(-ew)));
          least = std::min(least, linear.error(linear.exact_x, q_x, q_w));
        }
      }
      const double got = linear.error(linear.exact_x, rounded(linear.x, dtype, *q.input->scale),
                                      rounded(linear.w, dtype, q.weight.scales.front()));
      // Pairs whose errors agree in six digits may change places.
      EXPECT_NEAR(got / least, 1, 1e-6) << enum_name(format) << " " << n_samples;
      const SiteResult again = linear.quantized(options, backend_);
      EXPECT_EQ(again.linears.front().weight.data, q.weight.data);
      EXPECT_EQ(again.linears.front().report.output_snr_db, q.report.output_snr_db);
      found.insert({*q.input->scale, q.report.output_snr_db});
    }
    EXPECT_EQ(found.size(), 4u) << enum_name(format);
  }
}

TEST_F(Samples, all_decide_how_far_inputs_are_smoothed) {
  std::set<std::vector<float>> divisors;
  for (const int64_t n_samples : {8, 16, 64, 13}) {
    Linear linear(n_samples);
    const PtqOptions options =
        checked({.format = PtqFormat::int8, .method = PtqMethod::smoothquant});
    const SiteResult result = linear.quantized(options, backend_);
    ASSERT_TRUE(result.linears.front().report.alpha);
    const auto smoothed_error = [&](double alpha) {
      std::vector<float> x = linear.x, w = linear.w;
      for (size_t c = 0; c < kIn; ++c) {
        float most_x = 0, most_w = 0;
        for (size_t i = c; i < x.size(); i += kIn) most_x = std::max(most_x, std::abs(x[i]));
        for (size_t i = c; i < w.size(); i += kIn) most_w = std::max(most_w, std::abs(w[i]));
        const auto s = static_cast<float>(std::pow(static_cast<double>(most_x), alpha) /
                                          std::pow(static_cast<double>(most_w), 1 - alpha));
        for (size_t i = c; i < x.size(); i += kIn) x[i] /= s;
        for (size_t i = c; i < w.size(); i += kIn) w[i] *= s;
      }
      const auto scale = [](const std::vector<float>& values) {
        float most = 0;
        for (const float value : values) most = std::max(most, std::abs(value));
        return most / 127;
      };
      return linear.error(linear.x, rounded(x, Dtype::int8, scale(x)),
                          rounded(w, Dtype::int8, scale(w)));
    };
    double least = std::numeric_limits<double>::infinity();
    for (int step = 0; step <= 10; ++step) least = std::min(least, smoothed_error(step / 10.0));
    EXPECT_NEAR(smoothed_error(*result.linears.front().report.alpha) / least, 1, 1e-4) << n_samples;
    divisors.insert(result.divisor);
  }
  EXPECT_EQ(divisors.size(), 4u);
}

// Results of a whole model's walk over 13 rows do not depend on how they are divided.
TEST_F(Samples, in_a_smaller_last_batch_count_as_others_do) {
  const test::ScratchFolder folder;
  const ModelSpec spec = test::tiny_spec(ModelKind::llama);
  test::put_tiny_model(folder, spec, 8);
  const Batch all = test::tiny_rows(spec, 13, 16).front();
  const auto divided = [&](const std::vector<int64_t>& sizes) {
    std::vector<Batch> rows;
    auto at = all.ints("tokens").begin();
    for (const int64_t size : sizes) {
      rows.push_back(empty_batch(size, all.seq));
      const auto end = at + static_cast<std::ptrdiff_t>(rows.back().ints("tokens").size());
      rows.back().ints("tokens").assign(at, end);
      complete(rows.back());
      at = end;
    }
    return rows;
  };
  int n_calls = 0;
  const auto reports = [&](PtqOptions options, const std::vector<int64_t>& sizes) {
    const ModelSource source = find_model_source(posix_files(), folder.path());
    return quantize_model(posix_files(),
                          {.source = source,
                           .options = checked(options),
                           .out = folder / fmt::format("out-{}", n_calls++),
                           .rows = divided(sizes)},
                          backend_, {})
        .reports;
  };
  const PtqOptions kHow[] = {
      {.format = PtqFormat::hif8, .method = PtqMethod::algorithm1},
      {.format = PtqFormat::hif8,
       .method = PtqMethod::algorithm1,
       .target = ErrorTarget::quantized},
      {.format = PtqFormat::int8, .method = PtqMethod::smoothquant},
      {.format = PtqFormat::int8, .method = PtqMethod::gptq},
      {.format = PtqFormat::e4m3, .method = PtqMethod::max, .residual = true}};
  for (const PtqOptions& how : kHow) {
    const auto whole = reports(how, {13}), parts = reports(how, {8, 5}), some = reports(how, {8});
    ASSERT_EQ(whole.size(), parts.size());
    bool is_same = true;
    for (size_t i = 0; i < whole.size(); ++i) {
      EXPECT_EQ(whole[i].input_scale, parts[i].input_scale) << whole[i].name;
      EXPECT_EQ(whole[i].alpha, parts[i].alpha) << whole[i].name;
      EXPECT_NEAR(whole[i].input.mse, parts[i].input.mse, 1e-6 * whole[i].input.mse);
      EXPECT_NEAR(whole[i].output_snr_db, parts[i].output_snr_db, 1e-3) << whole[i].name;
      is_same = is_same && whole[i].input.mse == some[i].input.mse &&
                whole[i].output_snr_db == some[i].output_snr_db;
    }
    EXPECT_FALSE(is_same) << enum_name(how.method);
  }
}

// The first site's inputs are those of both models.
TEST_F(Samples, algorithm_1_has_the_target_that_is_asked_for) {
  const test::ScratchFolder folder;
  test::put_tiny_model(folder, test::tiny_spec(ModelKind::llama), 8);
  const auto snr = [&](const std::string& name, std::optional<ErrorTarget> target) {
    const ModelSource source = find_model_source(posix_files(), folder.path());
    const PtqOptions options =
        checked({.format = PtqFormat::e5m2, .method = PtqMethod::algorithm1, .target = target});
    std::vector<double> all;
    for (const SiteReport& report : quantize_model(posix_files(),
                                                   {.source = source,
                                                   .options = options,
                                                   .out = folder / name,
                                                   .rows = test::tiny_rows(source.spec, 8, 16)},
                                                   backend_, {})
                                        .reports)
      all.push_back(report.output_snr_db);
    return all;
  };
  const auto by_default = snr("default", {}), unquantized = snr("u", ErrorTarget::unquantized),
             quantized = snr("q", ErrorTarget::quantized);
  EXPECT_EQ(by_default, unquantized);
  EXPECT_NE(unquantized, quantized);
  EXPECT_EQ(unquantized.front(), quantized.front());
  EXPECT_EQ(
      test::error_of([] { checked({.method = PtqMethod::max, .target = ErrorTarget::quantized}); }),
      "[ptq] --target: expected none with max: algorithm1's alone");
}

}  // namespace
}  // namespace octet::ptq_samples_test
