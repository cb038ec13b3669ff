// VGG: stages of 3 x 3 convolutions, each stage before a pooling to half the extents, and three
// linears on 7 x 7 pixels, or one on the mean of all. Source: Simonyan & Zisserman 2015; a batch
// norm behind each convolution as torchvision's vgg16_bn has it, whose names these are: modules are
// counted, activations and poolings too. Layers are the convolutions but the first, and the linears
// but the last, in their order.
#include <algorithm>
#include <numeric>

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
    {.field = "depths", .key = "depths"},
    {.field = "hidden_sizes", .key = "hidden_sizes"},
    {.field = "batch_norm", .key = "batch_norm", .absent = 1},
    {.field = "classifier_hidden", .key = "classifier_hidden", .absent = 4096},
    {.field = "folded_norms", .key = "folded_norms", .absent = 0},
    {.field = "norm_eps", .key = "batch_norm_eps", .absent = 1e-5},
};
constexpr HfNeutral kNeutrals[] = {{.key = "hidden_act", .value = "\"relu\""}};

// Heads of no class of transformers.
constexpr auto kHeads = image_heads("VGG", "VGGModel");
constexpr std::string_view kHeadPrefixes[] = {"classifier."};
constexpr int64_t kSide = 7;  // pixels that the three linears read

void fill(ModelSpec& full) {
  constexpr int64_t kMostChannels = 512;
  if (full.depths.empty()) full.depths = {2, 2, 3, 3, 3};
  fill_widths(full, 64, kMostChannels);
  full.layers = std::accumulate(full.depths.begin(), full.depths.end(), int64_t{-1});
  if (full.classifier_hidden > 0) full.layers += 2;
  full.layers = std::max<int64_t>(full.layers, 1);
  full.hidden = full.hidden_sizes.back();
}

std::optional<ModelFault> fault(const ModelSpec& full) {
  if (auto fault = fault_of_stages(full)) return fault;
  const auto n_halved = std::ssize(full.depths);
  if (n_halved < 32 && full.image_size >> n_halved > 0) return std::nullopt;
  return fault_against("depths", "image_size", "no more stages than {} can be halved", full);
}

// Modules that stand between two convolutions of a stage, and the first of them.
int64_t n_modules(const ModelSpec& spec) {
  return spec.batch_norm ? 3 : 2;
}

std::string norm_behind(std::string_view convolution) {
  const size_t at = convolution.rfind('.') + 1;
  const auto i = parse_number<int64_t>(convolution.substr(at));
  return i ? fmt::format("{}{}", convolution.substr(0, at), *i + 1) : std::string();
}

// The places of the convolutions among the modules.
std::vector<int64_t> places(const ModelSpec& spec) {
  std::vector<int64_t> all;
  int64_t next = 0;
  for (const int64_t depth : spec.depths) {
    for (int64_t i = 0; i < depth; ++i, next += n_modules(spec)) all.push_back(next);
    ++next;  // the pooling
  }
  return all;
}

bool skips(const ModelSpec& spec, std::string_view stored) {
  if (stored.ends_with(".num_batches_tracked")) return true;
  if (!spec.folded_norms || !spec.batch_norm) return false;
  const std::vector<int64_t> all = places(resolved(spec));
  return std::ranges::any_of(all, [&](int64_t place) {
    return stored.starts_with(fmt::format("features.{}.", place + 1));
  });
}

Picture convolved(Blocks& b, const Picture& x, int64_t place, int64_t n_out) {
  const ModelSpec& spec = b.spec();
  const std::string path = fmt::format("features.{}", place);
  Picture y = convolution(b, x, path, n_out, {.padding = 1, .bias = WithBias::yes});
  if (spec.batch_norm && !spec.folded_norms) y = batch_norm(b, y, norm_behind(path));
  return relu(b, y, fmt::format("features.{}", place + n_modules(spec) - 1));
}

ValueId classes_of(Blocks& b, const Picture& x, int layer) {
  const ModelSpec& spec = b.spec();
  const LinearOptions options{.bias = WithBias::yes, .whole_path = true};
  if (spec.classifier_hidden == 0)
    return b.linear(mean_of_pixels(b, x), "classifier", spec.classes, options);
  ValueId y = flat_means(b, x, "avgpool", kSide);
  for (const int64_t place : {0, 3}) {
    b.enter(layer++, "");
    y = b.linear(y, fmt::format("classifier.{}", place), spec.classifier_hidden, options);
    y = b.relu(y, fmt::format("classifier.{}", place + 1));
  }
  b.enter(-1, "");
  return b.linear(y, "classifier.6", spec.classes, options);
}

Outputs build(Blocks& b) {
  const ModelSpec& spec = b.spec();
  Picture x = picture_of(b, b.input("pixels"));
  b.enter(-1, "");
  const std::vector<int64_t> all = places(spec);
  size_t i = 0;
  for (size_t s = 0; s < spec.depths.size(); ++s) {
    for (int64_t n = 0; n < spec.depths[s]; ++n, ++i) {
      b.enter(static_cast<int>(i) - 1, "");
      x = convolved(b, x, all[i], spec.hidden_sizes[s]);
    }
    const std::string pooling = fmt::format("features.{}", all[i - 1] + n_modules(spec));
    x = max_pool(b, x, pooling, {.kernel = 2, .stride = 2});
  }
  b.enter(-1, "");
  if (head_of(spec).head == ModelHead::features) return {mean_of_pixels(b, x)};
  return {classes_of(b, x, static_cast<int>(i) - 1)};
}

}  // namespace

constinit const ModelDef kVgg = convolutional_model({.kind = ModelKind::vgg,
                                                     .name = "vgg",
                                                     .architecture = "VGG",
                                                     .prefix = "",
                                                     .head = "classifier.6.weight",
                                                     .hf_keys = kKeys,
                                                     .own_hf_keys = {},
                                                     .hf_neutrals = kNeutrals,
                                                     .build = build,
                                                     .heads = kHeads,
                                                     .head_prefixes = kHeadPrefixes,
                                                     .skips = skips,
                                                     .norm_behind = norm_behind,
                                                     .fill = fill,
                                                     .fault = fault});

}  // namespace octet
