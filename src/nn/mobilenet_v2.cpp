// MobileNetV2: blocks of a 1 x 1 convolution that makes more channels, a depthwise one of 3 x 3 and
// a 1 x 1 one that makes few again, each with a batch norm behind it, and a sum around those that
// change no extent. Source: Sandler et al. 2018. Names: MobileNetV2ForImageClassification of
// transformers; torchvision's are read, too. The layers: the first block, which its stem holds, is
// 0, the sixteen others 1 to 16, and the last convolution 17.
#include <algorithm>
#include <array>
#include <cmath>

#include "base/parse_text.h"
#include "nn/blocks.h"
#include "nn/convolution.h"
#include "nn/image_model.h"
#include "nn/list.h"
#include "nn/shape.h"

namespace octet {
namespace {

constexpr HfKey kKeys[] = {
    {.field = "channels", .key = "num_channels", .absent = 3},
    {.field = "image_size", .key = "image_size", .absent = 224},
    {.field = "depth_multiplier", .key = "depth_multiplier", .absent = 1},
    {.field = "depth_divisible_by", .key = "depth_divisible_by", .absent = 8},
    {.field = "min_depth", .key = "min_depth", .absent = 8},
    {.field = "expand_ratio", .key = "expand_ratio", .absent = 6},
    {.field = "output_stride", .key = "output_stride", .absent = 32},
    {.field = "first_layer_is_expansion", .key = "first_layer_is_expansion", .absent = 1},
    {.field = "finegrained_output", .key = "finegrained_output", .absent = 1},
    {.field = "tf_padding", .key = "tf_padding", .absent = 1},
    {.field = "folded_norms", .key = "folded_norms", .absent = 0},
    {.field = "norm_eps", .key = "layer_norm_eps", .absent = 1e-3},
};
constexpr HfNeutral kNeutrals[] = {{.key = "hidden_act", .value = "\"relu6\""}};

constexpr auto kHeads = image_heads("MobileNetV2ForImageClassification", "MobileNetV2Model");
constexpr std::string_view kHeadPrefixes[] = {"classifier."};

// The paper's channels of what each block gives, and strides of the sixteen behind the first.
constexpr std::array<int64_t, 17> kChannels = {16, 24, 24, 32, 32,  32,  64,  64, 64,
                                               64, 96, 96, 96, 160, 160, 160, 320};
constexpr std::array<int64_t, 16> kStrides = {2, 1, 2, 1, 1, 2, 1, 1, 1, 1, 1, 1, 2, 1, 1, 1};
constexpr int64_t kFirst = 32, kLast = 1280;

// `channels` as a multiple of depth_divisible_by, less than a tenth below it.
int64_t divisible(const ModelSpec& spec, double channels) {
  const double wanted = std::nearbyint(channels);  // halves to even
  const int64_t by = spec.depth_divisible_by;
  const auto whole = static_cast<int64_t>(wanted + static_cast<double>(by) / 2);
  const int64_t n = std::max(spec.min_depth, whole / by * by);
  return static_cast<double>(n) < 0.9 * wanted ? n + by : n;
}
int64_t multiplied(const ModelSpec& spec, int64_t channels) {
  return divisible(spec, static_cast<double>(channels) * spec.depth_multiplier);
}

void fill(ModelSpec& full) {
  full.layers = std::ssize(kChannels) + 1;
  const bool stays = full.finegrained_output && full.depth_multiplier < 1;
  full.hidden = stays ? kLast : multiplied(full, kLast);
}

std::optional<ModelFault> fault(const ModelSpec& full) {
  constexpr std::array<int64_t, 5> kOutputStrides = {2, 4, 8, 16, 32};
  if (std::ranges::count(kOutputStrides, full.output_stride) > 0) return std::nullopt;
  return ModelFault{.field = "output_stride",
                    .expected = "2, 4, 8, 16 or 32",
                    .got = fmt::to_string(full.output_stride)};
}

bool skips(const ModelSpec& spec, std::string_view stored) {
  const bool is_norm = stored.find(".normalization.") != stored.npos;
  return stored.ends_with(".num_batches_tracked") || (spec.folded_norms && is_norm);
}

std::string norm_behind(std::string_view convolution) {
  return fmt::format("{}normalization", convolution.substr(0, convolution.rfind('.') + 1));
}

// Name here of torchvision's block `i` (features.i.conv.REST): the module, and the rest behind it.
std::string renamed_block(int64_t i, std::string_view rest) {
  constexpr std::pair<std::string_view, std::string_view> kOfFirst[] = {
      {"0.0.", "conv_3x3.convolution."},
      {"0.1.", "conv_3x3.normalization."},
      {"1.", "reduce_1x1.convolution."},
      {"2.", "reduce_1x1.normalization."}};
  constexpr std::pair<std::string_view, std::string_view> kOfOthers[] = {
      {"0.0.", "expand_1x1.convolution."}, {"0.1.", "expand_1x1.normalization."},
      {"1.0.", "conv_3x3.convolution."},   {"1.1.", "conv_3x3.normalization."},
      {"2.", "reduce_1x1.convolution."},   {"3.", "reduce_1x1.normalization."}};
  using Names = std::span<const std::pair<std::string_view, std::string_view>>;
  const std::string module =
      i == 1 ? "mobilenet_v2.conv_stem." : fmt::format("mobilenet_v2.layer.{}.", i - 2);
  for (const auto& [from, to] : i == 1 ? Names(kOfFirst) : Names(kOfOthers))
    if (rest.starts_with(from)) return fmt::format("{}{}{}", module, to, rest.substr(from.size()));
  return std::string(rest);
}

// torchvision's names.
std::string renamed(const ModelSpec&, std::string_view stored) {
  constexpr std::string_view kFeatures = "features.", kClassifier = "classifier.1.";
  if (stored.starts_with(kClassifier))
    return fmt::format("classifier.{}", stored.substr(kClassifier.size()));
  if (!stored.starts_with(kFeatures)) return std::string(stored);
  std::string_view rest = stored.substr(kFeatures.size());
  const size_t dot = std::min(rest.find('.'), rest.size() - 1);
  const std::optional<int64_t> i = parse_number<int64_t>(rest.substr(0, dot));
  rest = rest.substr(dot + 1);
  if (!i || *i < 0 || *i > std::ssize(kChannels) + 1) return std::string(stored);
  constexpr std::string_view kBlock = "conv.";
  if (rest.starts_with(kBlock)) return renamed_block(*i, rest.substr(kBlock.size()));
  const std::string_view module = *i == 0 ? "conv_stem.first_conv" : "conv_1x1";
  const bool is_norm = rest.starts_with("1.");
  return fmt::format("mobilenet_v2.{}.{}.{}", module, is_norm ? "normalization" : "convolution",
                     rest.substr(rest.find('.') + 1));
}

enum class Behind : uint8_t { relu6, nothing };

// A convolution with the picture's extents over its stride, and the norm behind it.
struct Convolved {
  int64_t n_out, kernel = 1, stride = 1, dilation = 1, groups = 1;
  Behind behind = Behind::relu6;
};
Picture convolved(Blocks& b, const Picture& x, std::string_view module, const Convolved& c) {
  const ModelSpec& spec = b.spec();
  const std::string path = fmt::format("{}.convolution", module);
  Picture y = convolution(b, x, path, c.n_out,
                          {.kernel = c.kernel,
                           .stride = c.stride,
                           .padding = (c.kernel - 1) / 2 * c.dilation,
                           .dilation = c.dilation,
                           .groups = c.groups,
                           .bias = bias_if(spec.folded_norms),
                           .border = spec.tf_padding ? Border::same : Border::given});
  if (!spec.folded_norms) y = batch_norm(b, y, norm_behind(path));
  return c.behind == Behind::relu6 ? relu6(b, y, fmt::format("{}.activation", module)) : y;
}

struct Extents {
  int64_t n_out, stride = 1, dilation = 1;
};

// Convolutions that follow the channels that a block makes, n of them.
Picture narrowed(Blocks& b, const Picture& x, int64_t n, const Extents& e) {
  const Picture y =
      convolved(b, x, "conv_3x3",
                {.n_out = n, .kernel = 3, .stride = e.stride, .dilation = e.dilation, .groups = n});
  return convolved(b, y, "reduce_1x1", {.n_out = e.n_out, .behind = Behind::nothing});
}

Picture stem(Blocks& b) {
  constexpr std::string_view kPrefix = "mobilenet_v2.conv_stem.";
  const ModelSpec& spec = b.spec();
  const int64_t n = multiplied(spec, kFirst);
  const Picture pixels = picture_of(b, b.input("pixels"));
  b.enter(-1, std::string(kPrefix));
  Picture x = convolved(b, pixels, "first_conv", {.n_out = n, .kernel = 3, .stride = 2});
  b.enter(0, std::string(kPrefix));
  if (!spec.first_layer_is_expansion) x = convolved(b, x, "expand_1x1", {.n_out = n});
  return narrowed(b, x, n, {.n_out = multiplied(spec, kChannels.front())});
}

Picture block(Blocks& b, const Picture& x, const Extents& e) {
  const int64_t n_in = b.shape(x.x)[1];
  const int64_t n = divisible(b.spec(), static_cast<double>(n_in) * b.spec().expand_ratio);
  const Picture y = narrowed(b, convolved(b, x, "expand_1x1", {.n_out = n}), n, e);
  return e.stride == 1 && e.n_out == n_in ? add(b, x, y) : y;
}

// Windows grow where no more pixels may be lost.
Outputs build(Blocks& b) {
  const ModelSpec& spec = b.spec();
  Picture x = stem(b);
  int64_t lost = 2, dilation = 1;
  for (size_t i = 0; i < kStrides.size(); ++i) {
    Extents e{.n_out = multiplied(spec, kChannels[i + 1])};
    if (lost == spec.output_stride) {
      e.dilation = dilation;
      dilation *= kStrides[i];
    } else {
      e.stride = kStrides[i];
      lost *= e.stride;
    }
    b.enter(static_cast<int>(i) + 1, fmt::format("mobilenet_v2.layer.{}.", i));
    x = block(b, x, e);
  }
  b.enter(static_cast<int>(kStrides.size()) + 1, "mobilenet_v2.");
  x = convolved(b, x, "conv_1x1", {.n_out = spec.hidden});
  b.enter(-1, "");
  const ValueId y = mean_of_pixels(b, x);
  if (head_of(spec).head == ModelHead::features) return {y};
  return {b.linear(y, "classifier", spec.classes, {.bias = WithBias::yes, .whole_path = true})};
}

}  // namespace

constinit const ModelDef kMobilenetV2 =
    convolutional_model({.kind = ModelKind::mobilenet_v2,
                         .name = "mobilenet_v2",
                         .architecture = "MobileNetV2ForImageClassification",
                         .prefix = "mobilenet_v2.",
                         .head = "classifier.weight",
                         .usual_norm_eps = 1e-3,
                         .hf_keys = kKeys,
                         .own_hf_keys = {},
                         .hf_neutrals = kNeutrals,
                         .build = build,
                         .heads = kHeads,
                         .head_prefixes = kHeadPrefixes,
                         .skips = skips,
                         .renamed = renamed,
                         .norm_behind = norm_behind,
                         .fill = fill,
                         .fault = fault});

}  // namespace octet
