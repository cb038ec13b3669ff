// Whole models: what is written runs as it was simulated.
#include <gtest/gtest.h>

#include "base/json.h"
#include "io/model_files.h"
#include "unit/base/error_of.h"
#include "unit/ptq/tiny_model.h"

namespace octet::ptq_model_test {
namespace {

using test::ScratchFolder;

class Ptq : public testing::Test {
 protected:
  PtqResult quantize(const std::string& from, const std::string& to, const PtqOptions& options,
                     const PtqHooks& hooks = {}) {
    const ModelSource source = find_model_source(posix_files(), from);
    return quantize_model(posix_files(),
                          {.source = source,
                           .options = checked(options),
                           .out = to,
                           .rows = test::tiny_rows(source.spec, 4, 16)},
                          backend_, hooks);
  }
  double snr(const std::string& exact, const std::string& quantized) {
    const ModelSpec spec = find_model_source(posix_files(), exact).spec;
    const Batch batch = test::tiny_rows(spec, 2, 12, 6).front();
    return test::snr_db(test::logits_of(exact, batch, backend_),
                        test::logits_of(quantized, batch, backend_));
  }

  Backend backend_ = cpu::make_backend(2, cpu::detect_isa());
};

// Llama in every format, the others in one of each layout.
TEST_F(Ptq, runs_every_architecture) {
  for (const ModelDef* model : models()) {
    const ModelSpec spec = test::tiny_spec(model->kind);
    const ScratchFolder folder;
    test::put_tiny_model(folder, spec);
    for (int format = 0; format < enum_count(PtqFormat{}); ++format) {
      const auto f = static_cast<PtqFormat>(format);
      const bool is_one = f == PtqFormat::int8 || f == PtqFormat::hif8;
      if (model->kind != ModelKind::llama && !is_one) continue;
      const std::string out = folder / ("out-" + std::string(enum_name(f)));
      const PtqResult result =
          quantize(folder.path(), out, {.format = f, .method = PtqMethod::max});
      EXPECT_GE(result.reports.size(), 8u) << model->name;
      const bool is_own = f == PtqFormat::hif8 || f == PtqFormat::e5m2 || !model->plain_linears;
      EXPECT_EQ(result.layout, is_own ? PtqLayout::own : PtqLayout::ecosystem) << model->name;
      EXPECT_FALSE(posix_files().exists(join_path(out, "ptq-progress")));
      // Two layers of random weights: 2 fraction bits of E5M2 leave the least, and HiFloat8's 1 to
      // 3 less than E4M3.
      const double least = f == PtqFormat::e5m2 ? 8 : f == PtqFormat::hif8 ? 13 : 14;
      EXPECT_GT(snr(folder.path(), out), least) << model->name << " " << enum_name(f);
      EXPECT_LT(snr(folder.path(), out), 60) << model->name << " " << enum_name(f);
    }
  }
}

TEST_F(Ptq, every_method_leaves_a_model_that_is_near) {
  const ScratchFolder folder;
  test::put_tiny_model(folder, test::tiny_spec(ModelKind::llama));
  const PtqOptions cases[] = {
      {.format = PtqFormat::hif8, .method = PtqMethod::direct},
      {.format = PtqFormat::e4m3, .method = PtqMethod::direct},
      {.format = PtqFormat::int8, .method = PtqMethod::direct},
      {.format = PtqFormat::e4m3, .method = PtqMethod::percentile},
      {.format = PtqFormat::fp8_block, .method = PtqMethod::phase},
      {.format = PtqFormat::hif8, .method = PtqMethod::algorithm1},
      {.format = PtqFormat::e4m3, .method = PtqMethod::algorithm1},
      {.format = PtqFormat::int8, .method = PtqMethod::gptq},
      {.format = PtqFormat::int8, .method = PtqMethod::smoothquant},
      {.format = PtqFormat::hif8,
       .method = PtqMethod::max,
       .activations = ActivationScaling::token},
      {.format = PtqFormat::int8,
       .method = PtqMethod::max,
       .weights = WeightScaling::channel,
       .activations = ActivationScaling::token},
      {.format = PtqFormat::e4m3, .method = PtqMethod::max, .residual = true},
      {.format = PtqFormat::e4m3, .method = PtqMethod::max, .keep = {"lm_head", "*down_proj"}}};
  int i = 0;
  for (const PtqOptions& options : cases) {
    const std::string out = folder / fmt::format("out-{}", i++);
    const PtqResult result = quantize(folder.path(), out, options);
    EXPECT_GT(snr(folder.path(), out), 12)
        << enum_name(options.format) << " " << enum_name(options.method);
    for (const SiteReport& report : result.reports) {
      EXPECT_TRUE(std::isfinite(report.output_snr_db)) << report.name;
      EXPECT_GE(report.input.snr_db(), 10) << report.name;
    }
  }
}

TEST_F(Ptq, algorithm_1_takes_the_exponents_with_the_least_error) {
  const ScratchFolder folder;
  test::put_tiny_model(folder, test::tiny_spec(ModelKind::llama));
  const auto report = [&](PtqMethod method) {
    return quantize(folder.path(), folder / std::string(enum_name(method)),
                    {.format = PtqFormat::hif8, .method = method});
  };
  const PtqResult searched = report(PtqMethod::algorithm1), cast = report(PtqMethod::direct);
  for (size_t i = 0; i < searched.reports.size(); ++i) {
    const SiteReport& s = searched.reports[i];
    const double e = -std::log2(*s.input_scale);
    EXPECT_EQ(e, std::round(e));
    EXPECT_GE(e, -4);
    EXPECT_LE(e, 5);
    // No exponent at all is among the choices; later sites have other inputs.
    const double least = i < 3 ? cast.reports[i].output_snr_db - 1e-3 : 0;
    EXPECT_GE(s.output_snr_db, least) << s.name;
  }
}

// The first phase is max's; later sites have other inputs.
TEST_F(Ptq, a_phase_is_taken_where_the_output_is_nearer) {
  const ScratchFolder folder;
  test::put_tiny_model(folder, test::tiny_spec(ModelKind::llama));
  for (const PtqFormat format : {PtqFormat::e4m3, PtqFormat::fp8_block}) {
    const auto report = [&](PtqMethod method) {
      const std::string out = fmt::format("{}-{}", enum_name(format), enum_name(method));
      return quantize(folder.path(), folder / out, {.format = format, .method = method});
    };
    const PtqResult phase = report(PtqMethod::phase), max = report(PtqMethod::max);
    int n_moved = 0;
    for (size_t i = 0; i < phase.reports.size(); ++i) {
      const double ratio = phase.reports[i].weight_scale_max / max.reports[i].weight_scale_max;
      const double p = kPhases * std::log2(ratio);
      EXPECT_NEAR(p, std::round(p), 1e-3) << phase.reports[i].name;
      EXPECT_GE(std::round(p), 0);
      EXPECT_LT(std::round(p), kPhases);
      n_moved += std::round(p) > 0 ? 1 : 0;
      if (i < 3) {
        EXPECT_GE(phase.reports[i].output_snr_db, max.reports[i].output_snr_db - 1e-3);
      }
    }
    EXPECT_GT(n_moved, 0);
  }
}

TEST_F(Ptq, smoothing_undoes_an_outlier_channel) {
  const ScratchFolder folder, twin;
  const ModelSpec spec = test::tiny_spec(ModelKind::llama);
  test::put_tiny_model(folder, spec);
  test::put_tiny_model(twin, spec, 256);
  EXPECT_GT(snr(folder.path(), twin.path()), 90);  // the same function
  const auto of = [&](PtqMethod method) {
    const std::string out = twin / std::string(enum_name(method));
    quantize(twin.path(), out, {.format = PtqFormat::int8, .method = method});
    return snr(twin.path(), out);
  };
  const double plain = of(PtqMethod::max), smooth = of(PtqMethod::smoothquant);
  EXPECT_LT(plain, 15);
  EXPECT_GT(smooth, plain + 10);
}

TEST_F(Ptq, goes_on_where_it_was_ended_with_the_same_bits) {
  struct Ended {};
  for (const PtqMethod method : {PtqMethod::gptq, PtqMethod::smoothquant}) {
    const ScratchFolder folder;
    test::put_tiny_model(folder, test::tiny_spec(ModelKind::llama), 8);
    const PtqOptions options{.format = PtqFormat::int8, .method = method};
    quantize(folder.path(), folder / "whole", options);
    const PtqHooks ends{.on_site = [](size_t i, size_t, const std::string&) {
      if (i == 2) throw Ended();
    }};
    EXPECT_THROW(quantize(folder.path(), folder / "parts", options, ends), Ended);
    EXPECT_FALSE(posix_files().exists(folder / "parts/config.json"));
    std::string said;
    quantize(folder.path(), folder / "parts", options,
             {.log = Log([&](LogLevel, const std::string& line) { said += line; })});
    EXPECT_NE(said.find("3 of 8 sites were done before"), std::string::npos) << said;
    EXPECT_EQ(posix_files().read_bytes(folder / "parts/model.safetensors"),
              posix_files().read_bytes(folder / "whole/model.safetensors"));
    EXPECT_FALSE(posix_files().exists(folder / "parts/ptq-progress"));
  }
}

TEST_F(Ptq, the_dequantized_model_has_the_same_weights) {
  const ScratchFolder folder;
  test::put_tiny_model(folder, test::tiny_spec(ModelKind::gpt2));
  const ModelSource source = find_model_source(posix_files(), folder.path());
  const PtqOptions options = checked({.format = PtqFormat::hif8, .method = PtqMethod::direct});
  for (const bool dequantize : {false, true}) {
    quantize_model(posix_files(),
                   {.source = source,
                    .options = options,
                    .out = folder / (dequantize ? "wide" : "q"),
                    .rows = test::tiny_rows(source.spec, 2, 8),
                    .dequantize = dequantize},
                   backend_, {});
  }
  const WeightReader q(posix_files(), folder / "q", source.spec);
  const WeightReader wide(posix_files(), folder / "wide", source.spec);
  int n_quantized = 0;
  for (const ParameterSpec& p : model_parameters(source.spec)) {
    if (q.scales(p.name) == nullptr) continue;
    ++n_quantized;
    EXPECT_EQ(q.read(p.name), wide.read(p.name)) << p.name;  // HiF8 is exact in BF16
    EXPECT_EQ(q.stored(p.name).dtype, Dtype::hif8);
  }
  EXPECT_EQ(n_quantized, 8);
  EXPECT_TRUE(wide.inputs().empty());
  EXPECT_FALSE(q.inputs().empty());
}

TEST_F(Ptq, weights_that_are_not_finite_and_text_that_is_too_short_are_refused) {
  const ScratchFolder folder;
  const ModelSpec spec = test::tiny_spec(ModelKind::llama);
  test::put_tiny_model(folder, spec, INFINITY);
  EXPECT_EQ(
      test::error_of(
          [&] {
            quantize(folder.path(), folder / "out",
                     {.format = PtqFormat::int8, .method = PtqMethod::max});
          },
          folder.path()),
      "[weights] DIR: element [3] of 'model.layers.0.input_layernorm.weight' [32]: expected a "
      "finite weight, got inf; --allow-nonfinite (of a run model.allow_nonfinite) reads it as "
      "it is");
  EXPECT_EQ(test::error_of([] { calibration_rows(TokenStream(), 8, 16); }),
            "[ptq] --calib: expected at least 16 tokens, one row, got 0");
}

TEST_F(Ptq, says_what_does_not_go_together) {
  const auto error = [](const PtqOptions& options) {
    return test::error_of([&] { checked(options); });
  };
  EXPECT_EQ(error({.format = PtqFormat::e4m3, .method = PtqMethod::gptq}),
            "[ptq] --method: expected gptq with int8, got e4m3");
  EXPECT_EQ(error({.format = PtqFormat::int8, .method = PtqMethod::algorithm1}),
            "[ptq] --method: expected algorithm1 with e4m3, e5m2 or hif8, got int8");
  EXPECT_EQ(error({.format = PtqFormat::mxfp8, .method = PtqMethod::percentile}),
            "[ptq] --method: expected percentile with e4m3, e5m2, hif8 or int8, got mxfp8");
  EXPECT_EQ(error({.format = PtqFormat::hif8, .method = PtqMethod::direct, .exponent_bias = 7}),
            "[ptq] --bias: expected e4m3 or e5m2 with direct, got hif8 with direct");
  EXPECT_EQ(error({.format = PtqFormat::mxfp8, .method = PtqMethod::max, .residual = true}),
            "[ptq] --residual: expected one fixed scale for each input, got mxfp8 with max");
  const ScratchFolder folder;
  test::put_tiny_model(folder, test::tiny_spec(ModelKind::llama));
  const PtqOptions none{
      .format = PtqFormat::e4m3, .method = PtqMethod::max, .keep = {"layers.9.*"}};
  EXPECT_EQ(test::error_of([&] { quantize(folder.path(), folder / "out", none); }),
            "[ptq] --keep: expected a pattern that matches a linear, such as layers.0.down_proj, "
            "got 'layers.9.*'");
  quantize(folder.path(), folder / "q", {.format = PtqFormat::e4m3, .method = PtqMethod::max});
  const PtqOptions twice{.format = PtqFormat::int8, .method = PtqMethod::max};
  EXPECT_EQ(test::error_of([&] { quantize(folder / "q", folder / "again", twice); }, folder.path()),
            "[ptq] 'DIR/q': expected weights in F32, BF16 or F16, got "
            "'model.layers.0.self_attn.q_proj.weight' in 8 bits");
}

}  // namespace
}  // namespace octet::ptq_model_test
