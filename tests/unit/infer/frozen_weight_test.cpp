// A frozen base's weights made in pieces: the bits of the whole matrix quantized at once.
#include "infer/matrix_quantizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/philox.h"
#include "io/safetensors.h"
#include "unit/base/error_of.h"
#include "unit/base/scratch_folder.h"

namespace octet::infer_frozen_weight_test {
namespace {

using test::error_of;
using test::ScratchFolder;

constexpr int64_t kRaggedHidden = 200, kRaggedFfn = 390;  // ragged blocks

ModelSpec spec() {
  return resolved(
      {.hidden = kRaggedHidden, .layers = 1, .heads = 2, .ffn = kRaggedFfn, .vocab = 11});
}
const std::string kWeight = "model.layers.0.mlp.down_proj.weight";  // [kRaggedHidden, kRaggedFfn]

// Values over many powers of two; `first` stands at element 0 of kWeight.
std::vector<float> values_of(size_t n, float first) {
  const RandomStream random{.name = 7, .seed = 1};
  std::vector<float> values(n);
  for (size_t i = 0; i < n; ++i)
    values[i] = std::ldexp(2 * random.uniform(i) - 1, static_cast<int>(i / 977 % 13) - 6);
  values[0] = first;
  return values;
}

WeightReader put_model(const ScratchFolder& folder, float first = 0.5f) {
  std::vector<TensorSource> sources;
  std::vector<std::vector<float>> kept;
  for (const ParameterSpec& p : model_parameters(spec())) {
    kept.push_back(values_of(static_cast<size_t>(n_elems(p.shape)), first));
    sources.push_back(span_source(tensor_decl(p.name, Dtype::f32, p.shape),
                                  std::as_bytes(std::span(kept.back()))));
  }
  write_atomically(posix_files(), folder / "model.safetensors",
                   [&](FileWriter& out) { write_safetensors(out, sources); });
  return WeightReader(posix_files(), folder / "model.safetensors", spec());
}

TEST(FrozenWeight, pieces_have_the_bits_of_the_whole) {
  const ScratchFolder folder;
  const WeightReader base = put_model(folder);
  const std::vector<float> values = base.read(kWeight);
  struct Case {
    FrozenFormat format;
    Dtype dtype, scale;
    Granularity granularity;
  };
  const Granularity tensor{Granularity::Kind::tensor},
      blocks{Granularity::Kind::block, kFrozenBlock};
  for (const Case& c : {Case{FrozenFormat::e4m3, Dtype::e4m3, Dtype::f32, tensor},
                        Case{FrozenFormat::hif8, Dtype::hif8, Dtype::f32, tensor},
                        Case{FrozenFormat::e4m3_blocks, Dtype::e4m3, Dtype::bf16, blocks}}) {
    SCOPED_TRACE(enum_name(c.format));
    const MatrixShape shape{kRaggedHidden, kRaggedFfn};
    Quantizer quantizer = linear_quantizer(c.dtype, c.granularity);
    quantizer.scale_type = c.scale;
    std::vector<uint8_t> data(values.size());
    std::vector<float> scales(static_cast<size_t>(scale_shape(shape, c.granularity).n_elems()));
    std::vector<float> decoded(values.size());
    EXPECT_FALSE(quantize(quantizer, shape, values, data, scales));
    dequantize(quantizer, shape, data, scales, decoded);

    const FrozenWeight frozen(base, kWeight, {kRaggedHidden, kRaggedFfn}, c.format);
    EXPECT_EQ(frozen.scales(), scales);
    std::vector<uint8_t> data_in_pieces(values.size());
    std::vector<float> decoded_in_pieces = values;
    constexpr size_t kPiece = 1237;  // ends within rows and blocks
    for (size_t first = 0; first < values.size(); first += kPiece) {
      const size_t n = std::min(kPiece, values.size() - first);
      const auto at = static_cast<int64_t>(first);
      frozen.encode(at, std::span(values).subspan(first, n),
                    std::span(data_in_pieces).subspan(first, n));
      frozen.round(at, std::span(decoded_in_pieces).subspan(first, n));
    }
    EXPECT_EQ(data_in_pieces, data);
    EXPECT_EQ(decoded_in_pieces, decoded);
  }
}

// A scale of another phase than amax / 448, as post-training quantization may choose it.
TEST(FrozenWeight, keeps_the_data_of_a_file_that_has_them_with_one_scale) {
  const ScratchFolder folder;
  constexpr size_t kElems = kRaggedHidden * kRaggedFfn;
  std::vector<uint8_t> stored(kElems);
  for (size_t i = 0; i < kElems; ++i) stored[i] = static_cast<uint8_t>(i % 121 + i % 2 * 128);
  const std::vector<float> scale{0.0123f};
  std::vector<TensorSource> sources;
  std::vector<std::vector<float>> kept;
  for (const ParameterSpec& p : model_parameters(spec())) {
    const bool is_coded = p.name == kWeight;
    kept.push_back(values_of(static_cast<size_t>(n_elems(p.shape)), 0.5f));
    sources.push_back(span_source(
        tensor_decl(p.name, is_coded ? Dtype::e4m3 : Dtype::f32, p.shape),
        is_coded ? std::as_bytes(std::span(stored)) : std::as_bytes(std::span(kept.back()))));
  }
  sources.push_back(span_source(tensor_decl(kWeight + "_scale", Dtype::f32, {1}),
                                std::as_bytes(std::span(scale))));
  write_atomically(posix_files(), folder / "model.safetensors",
                   [&](FileWriter& out) { write_safetensors(out, sources); });
  const WeightReader base(posix_files(), folder / "model.safetensors", spec());
  const FrozenWeight frozen(base, kWeight, {kRaggedHidden, kRaggedFfn}, FrozenFormat::e4m3);
  EXPECT_EQ(frozen.scales(), scale);
  std::vector<uint8_t> data(kElems);
  frozen.encode(0, base.read(kWeight), data);
  EXPECT_EQ(data, stored);
}

TEST(FrozenWeight, that_is_not_finite_is_named) {
  const ScratchFolder folder;
  const WeightReader base = put_model(folder, std::numeric_limits<float>::infinity());
  EXPECT_NE(
      error_of([&] {
        FrozenWeight(base, kWeight, {kRaggedHidden, kRaggedFfn}, FrozenFormat::e4m3);
      }).find("element [0,0] of '" + kWeight + "' [200,390]: expected a finite weight, got inf"),
      std::string::npos);
}

}  // namespace
}  // namespace octet::infer_frozen_weight_test
