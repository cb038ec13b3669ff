// Encoders: methods see the inputs that a model declares, whatever they are.
#include <gtest/gtest.h>

#include "unit/ptq/tiny_model.h"

namespace octet::ptq_encoders_test {
namespace {
namespace of_encoders {

using test::ScratchFolder;

ModelSpec tiny_vit() {
  return resolved({.kind = ModelKind::vit,
                   .hidden = 32,
                   .layers = 2,
                   .heads = 4,
                   .ffn = 64,
                   .classes = 7,
                   .image_size = 8,
                   .patch_size = 4,
                   .channels = 3});
}

ModelSpec tiny_bert(ModelHead head) {
  ModelSpec spec = test::tiny_spec(ModelKind::bert);
  spec.head = head;
  spec.classes = 3;
  return resolved(spec);
}

// Random rows, of text behind `n_held` tokens padding.
class RandomRows : public EvalRows {
 public:
  RandomRows(const ModelSpec& spec, int64_t n_rows, int64_t seq = 1, int64_t n_held = 0)
      : spec_(spec), n_rows_(n_rows), seq_(seq), n_held_(n_held > 0 ? n_held : seq) {}
  int64_t n_rows() const override { return n_rows_; }
  Batch at(int64_t first_row, int64_t batch) const override {
    Batch rows{.batch = batch, .seq = seq_};
    for (const InputSpec& input : model_def(spec_.kind).inputs(spec_, {})) {
      if (input.name != "tokens" && input.name != "pixels") continue;
      HostTensor& tensor = rows.add(input);
      for (int64_t row = 0; row < batch; ++row) fill(tensor, row, first_row + row);
    }
    if (spec_.vocab > 0 && rows.find("tokens") != nullptr)
      rows.lengths.assign(static_cast<size_t>(batch), n_held_);
    return rows;
  }

 private:
  void fill(HostTensor& tensor, int64_t row, int64_t number) const {
    const RandomStream random{.name = name_hash("rows"), .seed = static_cast<uint32_t>(number)};
    if (auto* reals = std::get_if<std::vector<float>>(&tensor.values)) {
      const int64_t n = tensor.spec.n_inner();
      for (int64_t i = 0; i < n; ++i)
        (*reals)[static_cast<size_t>(row * n + i)] = random.normal(static_cast<uint64_t>(i));
      return;
    }
    auto& ints = std::get<std::vector<int32_t>>(tensor.values);
    for (int64_t i = 0; i < n_held_; ++i)
      ints[static_cast<size_t>(row * seq_ + i)] =
          1 + static_cast<int32_t>(random.bits(static_cast<uint64_t>(i)) % 60u);
  }

  ModelSpec spec_;
  int64_t n_rows_, seq_, n_held_;
};

class PtqOfEncoders : public testing::Test {
 protected:
  PtqResult quantize(const std::string& from, const std::string& to, const PtqOptions& options,
                     const std::vector<Batch>& rows) {
    const ModelSource source = find_model_source(posix_files(), from);
    return quantize_model(posix_files(),
                          {.source = source, .options = checked(options), .out = to, .rows = rows},
                          backend_, {});
  }

  std::vector<float> outputs(const std::string& folder, const Batch& batch) {
    const ModelSource source = find_model_source(posix_files(), folder);
    const WeightReader weights(posix_files(), source.weights, source.spec);
    const FunctionKey key{function::logits, {.batch = batch.batch, .seq = batch.seq}};
    Inference model(source.spec, {"fp32", weights.inputs()}, std::span(&key, 1), *backend_.device,
                    *backend_.catalogue);
    model.load(weights);
    BoundPlan& run = model.function(key.name, key.size);
    upload(run, batch);
    run.run();
    const OutputSpec output = model_def(source.spec.kind).outputs(source.spec).front();
    const int64_t n = output.per == Per::row ? batch.batch : batch.batch * batch.seq;
    return model.read_rows(run, output.name, 0, n);
  }

  Backend backend_ = cpu::make_backend(2, cpu::detect_isa());
};

TEST_F(PtqOfEncoders, every_method_leaves_a_model_that_is_near) {
  const struct {
    ModelSpec spec;
    int64_t seq;
  } models[] = {
      {tiny_vit(), 1}, {tiny_bert(ModelHead::masked), 12}, {tiny_bert(ModelHead::span), 12}};
  const PtqOptions cases[] = {
      {.format = PtqFormat::e4m3, .method = PtqMethod::direct},
      {.format = PtqFormat::hif8, .method = PtqMethod::direct},
      {.format = PtqFormat::e4m3, .method = PtqMethod::max, .keep = {}},
      {.format = PtqFormat::hif8, .method = PtqMethod::max, .residual = true},
      {.format = PtqFormat::e4m3, .method = PtqMethod::percentile},
      {.format = PtqFormat::hif8, .method = PtqMethod::algorithm1},
      {.format = PtqFormat::hif8, .method = PtqMethod::smoothed},
      {.format = PtqFormat::int8, .method = PtqMethod::smoothquant},
      {.format = PtqFormat::int8, .method = PtqMethod::gptq},
      {.format = PtqFormat::int8,
       .method = PtqMethod::max,
       .weights = WeightScaling::channel,
       .activations = ActivationScaling::token},
      {.format = PtqFormat::mxfp8, .method = PtqMethod::max}};
  int i = 0;
  for (const auto& [spec, seq] : models) {
    const ScratchFolder folder;
    test::put_tiny_model(folder, spec);
    const RandomRows rows(spec, 12, seq);
    Batch batch = rows.at(50, 4);
    complete(batch);
    const std::vector<float> exact = outputs(folder.path(), batch);
    for (const PtqOptions& options : cases) {
      const std::string out = folder / fmt::format("out-{}", i++);
      const PtqResult result = quantize(folder.path(), out, options, calibration_rows(rows, 12));
      EXPECT_GT(test::snr_db(exact, outputs(out, batch)), 12)
          << model_def(spec.kind).name << " " << enum_name(options.format) << " "
          << enum_name(options.method);
      for (const SiteReport& report : result.reports)
        EXPECT_GE(report.input.snr_db(), 10) << report.name;
    }
  }
}

TEST_F(PtqOfEncoders, a_cast_to_a_format_that_does_not_reach_the_values_loses_more) {
  for (const ModelSpec& spec : {tiny_vit(), tiny_bert(ModelHead::classes)}) {
    const ScratchFolder folder;
    test::put_tiny_model(folder, spec);
    const RandomRows rows(spec, 8, spec.kind == ModelKind::vit ? 1 : 12);
    Batch batch = rows.at(50, 4);
    complete(batch);
    const auto snr = [&](int bias) {
      const std::string out = folder / fmt::format("bias-{}", bias);
      quantize(folder.path(), out,
               {.format = PtqFormat::e4m3, .method = PtqMethod::direct, .exponent_bias = bias},
               calibration_rows(rows, 8));
      return test::snr_db(outputs(folder.path(), batch), outputs(out, batch));
    };
    EXPECT_GT(snr(7), 16) << model_def(spec.kind).name;
    EXPECT_LT(snr(1), 6) << model_def(spec.kind).name;  // nothing below 2^-4 is left
  }
}

// The first linear, whose inputs are the pixels.
TEST_F(PtqOfEncoders, max_of_the_patches_is_the_largest_pixel) {
  const ScratchFolder folder;
  const ModelSpec spec = tiny_vit();
  test::put_tiny_model(folder, spec);
  const std::vector<Batch> rows = calibration_rows(RandomRows(spec, 11), 11);
  const PtqResult result = quantize(folder.path(), folder / "q",
                                    {.format = PtqFormat::e4m3, .method = PtqMethod::max}, rows);
  float largest = 0;
  for (const Batch& batch : rows) largest = std::max(largest, amax(batch.reals("pixels")).value);
  const SiteReport& first = result.reports.front();
  EXPECT_EQ(first.name, "embeddings.patch_embeddings.projection");
  EXPECT_FLOAT_EQ(static_cast<float>(first.input_scale.value()), largest / 448);
  const std::string name = "vit.embeddings.patch_embeddings.projection.weight";
  const WeightReader exact(posix_files(), folder.path(), spec);
  const WeightReader quantized(posix_files(), folder / "q", spec);
  const std::vector<float> w = exact.read(name), q_w = quantized.read(name);
  const float scale = amax(w).value / 448;
  for (size_t i = 0; i < w.size(); ++i)
    ASSERT_EQ(q_w[i], decode(Dtype::e4m3, encode(Dtype::e4m3, w[i] * (1 / scale))) * scale) << i;
  EXPECT_EQ(result.layout, PtqLayout::own);  // others have a convolution there
}

TEST_F(PtqOfEncoders, the_last_linear_stays_unless_it_is_asked_for) {
  const ScratchFolder folder;
  test::put_tiny_model(folder, tiny_vit());
  const std::vector<Batch> rows = calibration_rows(RandomRows(tiny_vit(), 2), 2);
  const auto last = [&](const std::vector<std::string>& keep, const std::string& out) {
    const PtqOptions options{.format = PtqFormat::e4m3, .method = PtqMethod::max, .keep = keep};
    return quantize(folder.path(), folder / out, options, rows).reports.back().name;
  };
  EXPECT_EQ(last({"lm_head"}, "without"), "layers.1.output.dense");
  EXPECT_EQ(last({}, "with"), "classifier");
  EXPECT_EQ(last({"classifier"}, "by-name"), "layers.1.output.dense");
}

// Three quarters of each row are padding, or none is.
TEST_F(PtqOfEncoders, nothing_is_measured_of_padding) {
  const ScratchFolder folder;
  const ModelSpec spec = tiny_bert(ModelHead::classes);
  test::put_tiny_model(folder, spec);
  const auto scales = [&](int64_t seq, const std::string& out) {
    std::vector<double> all;
    const std::vector<Batch> rows = calibration_rows(RandomRows(spec, 6, seq, 5), 6);
    const PtqOptions options{.format = PtqFormat::e4m3, .method = PtqMethod::max};
    for (const SiteReport& r : quantize(folder.path(), folder / out, options, rows).reports) {
      all.push_back(*r.input_scale);
      all.push_back(r.output_snr_db / 1000);
    }
    return all;
  };
  const std::vector<double> padded = scales(20, "padded"), whole = scales(5, "whole");
  ASSERT_EQ(padded.size(), whole.size());
  for (size_t i = 0; i < padded.size(); ++i) EXPECT_NEAR(padded[i], whole[i], 1e-5) << i;
}

}  // namespace of_encoders
}  // namespace
}  // namespace octet::ptq_encoders_test
