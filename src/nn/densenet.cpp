// DenseNet: blocks of layers that add channels to all that came before, and transitions to half the
// channels and extents between them; norms stand before the convolutions. Source: Huang et al.
// 2017. Names: torchvision's, in which public files of it write norm.1 and conv.1 for norm1 and
// conv1. Layers are those of the blocks, and the transitions, in their order.
#include <algorithm>
#include <numeric>

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
    {.field = "embedding_size", .key = "num_init_features", .absent = 64},
    {.field = "depths", .key = "block_config"},
    {.field = "growth_rate", .key = "growth_rate", .absent = 32},
    {.field = "bn_size", .key = "bn_size", .absent = 4},
    {.field = "folded_norms", .key = "folded_norms", .absent = 0},
    {.field = "norm_eps", .key = "batch_norm_eps", .absent = 1e-5},
};
constexpr HfNeutral kNeutrals[] = {{.key = "hidden_act", .value = "\"relu\""}};

// Heads of no class of transformers.
constexpr auto kHeads = image_heads("DenseNet", "DenseNetModel");
constexpr std::string_view kHeadPrefixes[] = {"classifier."};

// Channels behind the last block.
int64_t last_channels(const ModelSpec& spec) {
  int64_t n = spec.embedding_size;
  for (size_t i = 0; i < spec.depths.size(); ++i) {
    if (i > 0) n /= 2;
    n += spec.depths[i] * spec.growth_rate;
  }
  return n;
}

void fill(ModelSpec& full) {
  if (full.embedding_size == 0) full.embedding_size = 64;
  if (full.depths.empty()) full.depths = {6, 12, 24, 16};
  full.layers =
      std::accumulate(full.depths.begin(), full.depths.end(), std::ssize(full.depths) - 1);
  full.hidden = last_channels(full);
}

std::optional<ModelFault> fault(const ModelSpec& full) {
  constexpr int64_t kMaxLayers = 4096, kMaxChannels = 1 << 20;
  if (full.layers > kMaxLayers || full.hidden > kMaxChannels)
    return fault_against("depths", "growth_rate", "fewer layers, or less than {}", full);
  const auto n_halved = std::ssize(full.depths) + 1;
  if (n_halved < 32 && (full.image_size + 3) >> n_halved > 0) return std::nullopt;
  return fault_against("depths", "image_size", "no more blocks than {} can be halved", full);
}

std::string norm_behind(std::string_view convolution) {
  constexpr std::string_view kFirst = "conv0", kNeck = "conv1";
  const std::string_view module = convolution.substr(0, convolution.size() - kFirst.size());
  if (convolution.ends_with(kFirst)) return fmt::format("{}norm0", module);
  return convolution.ends_with(kNeck) ? fmt::format("{}norm2", module) : "";
}

bool skips(const ModelSpec& spec, std::string_view stored) {
  const auto has = [&](std::string_view part) { return stored.find(part) != stored.npos; };
  return stored.ends_with(".num_batches_tracked") ||
         (spec.folded_norms && (has(".norm0.") || has(".norm2.")));
}

std::string renamed(const ModelSpec&, std::string_view stored) {
  std::string name(stored);
  for (const std::string_view old : {"norm.1.", "norm.2.", "conv.1.", "conv.2."})
    if (const size_t at = name.find(old); at != name.npos && name.find("denselayer") < at)
      name.erase(at + 4, 1);
  return name;
}

// Channels that a layer adds, of the channels so far.
Picture added(Blocks& b, const Picture& x) {
  const ModelSpec& spec = b.spec();
  const bool is_folded = spec.folded_norms;
  Picture y = relu(b, batch_norm(b, x, "norm1"), "relu1");
  y = convolution(b, y, "conv1", spec.bn_size * spec.growth_rate,
                  {.kernel = 1, .bias = bias_if(is_folded)});
  if (!is_folded) y = batch_norm(b, y, "norm2");
  return convolution(b, relu(b, y, "relu2"), "conv2", spec.growth_rate, {.padding = 1});
}

Picture transition(Blocks& b, const Picture& x) {
  const Picture y = relu(b, batch_norm(b, x, "norm"), "relu");
  return mean_pool(b, convolution(b, y, "conv", b.shape(x.x)[1] / 2, {.kernel = 1}), "pool", 2);
}

Picture first_convolution(Blocks& b) {
  const ModelSpec& spec = b.spec();
  const bool is_folded = spec.folded_norms;
  Picture x = picture_of(b, b.input("pixels"));
  b.enter(-1, "features.");
  x = convolution(b, x, "conv0", spec.embedding_size,
                  {.kernel = 7, .stride = 2, .padding = 3, .bias = bias_if(is_folded)});
  if (!is_folded) x = batch_norm(b, x, "norm0");
  return max_pool(b, relu(b, x, "relu0"), "pool0", {.kernel = 3, .stride = 2, .padding = 1});
}

Outputs build(Blocks& b) {
  const ModelSpec& spec = b.spec();
  Picture x = first_convolution(b);
  int layer = 0;
  for (size_t s = 0; s < spec.depths.size(); ++s) {
    for (int64_t i = 0; i < spec.depths[s]; ++i) {
      b.enter(layer++, fmt::format("features.denseblock{}.denselayer{}.", s + 1, i + 1));
      x = joined(b, x, added(b, x), "concat");
    }
    if (s + 1 == spec.depths.size()) break;
    b.enter(layer++, fmt::format("features.transition{}.", s + 1));
    x = transition(b, x);
  }
  b.enter(-1, "features.");
  x = relu(b, batch_norm(b, x, "norm5"), "relu5");
  b.enter(-1, "");
  const ValueId y = mean_of_pixels(b, x);
  if (head_of(spec).head == ModelHead::features) return {y};
  return {b.linear(y, "classifier", spec.classes, {.bias = WithBias::yes, .whole_path = true})};
}

}  // namespace

constinit const ModelDef kDensenet = convolutional_model({.kind = ModelKind::densenet,
                                                          .name = "densenet",
                                                          .architecture = "DenseNet",
                                                          .prefix = "",
                                                          .head = "classifier.weight",
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
