// Residual networks: a first convolution, stages of residual blocks of two or three convolutions,
// each with a batch norm behind it, the mean of the last pixels and a linear. Source: He et al.
// 2016. Names: ResNetForImageClassification of transformers; of CIFAR's kind, whose first
// convolution is 3 x 3 and whose shortcuts have no weights (He et al.'s option A), those of the
// widespread files for it (conv1, bn1, layer1.0.conv1, linear). torchvision's names are read, too,
// and are those of what transformers has not: groups (ResNeXt, Xie et al. 2017) and other widths.
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
    {.field = "cifar", .key = "cifar", .absent = 0},
    {.field = "channels", .key = "num_channels", .absent = 3},
    {.field = "image_size", .key = "image_size", .absent = 224},
    {.field = "embedding_size", .key = "embedding_size", .absent = 0},
    {.field = "layer_type",
     .key = "layer_type",
     .absent = static_cast<int>(ResidualBlock::bottleneck)},
    {.field = "hidden_sizes", .key = "hidden_sizes"},
    {.field = "depths", .key = "depths"},
    {.field = "downsample_in_first_stage", .key = "downsample_in_first_stage", .absent = 0},
    {.field = "downsample_in_bottleneck", .key = "downsample_in_bottleneck", .absent = 0},
    {.field = "groups", .key = "groups", .absent = 1},
    {.field = "width_per_group", .key = "width_per_group", .absent = 64},
    {.field = "folded_norms", .key = "folded_norms", .absent = 0},
    {.field = "norm_eps", .key = "batch_norm_eps", .absent = 1e-5},
};
constexpr HfNeutral kNeutrals[] = {{.key = "hidden_act", .value = "\"relu\""}};

constexpr auto kHeads = image_heads("ResNetForImageClassification", "ResNetModel");
constexpr std::string_view kHeadPrefixes[] = {"classifier.", "linear.", "fc."};
constexpr int64_t kReduction = 4, kUsualWidth = 64;

// True of a network that transformers has no class for, with the names of torchvision.
bool has_torchvision_names(const ModelSpec& spec) {
  return spec.groups != 1 || spec.width_per_group != kUsualWidth;
}
// Names of torchvision, or of the files for CIFAR.
bool has_short_names(const ModelSpec& spec) {
  return spec.cifar || has_torchvision_names(spec);
}

void fill(ModelSpec& full) {
  constexpr int64_t kTooWide = 1 << 17;  // which the field's bounds refuse
  const bool is_bottleneck = full.layer_type == ResidualBlock::bottleneck;
  if (full.embedding_size == 0) full.embedding_size = full.cifar ? 16 : 64;
  if (full.depths.empty())
    full.depths = full.cifar ? std::vector<int64_t>{3, 3, 3} : std::vector<int64_t>{3, 4, 6, 3};
  fill_widths(full, full.cifar ? 16 : is_bottleneck ? 256 : 64, kTooWide);
  full.layers = std::accumulate(full.depths.begin(), full.depths.end(), int64_t{0});
  full.hidden = full.hidden_sizes.back();
}

std::optional<ModelFault> fault(const ModelSpec& full) {
  if (auto fault = fault_of_stages(full)) return fault;
  const bool is_bottleneck = full.layer_type == ResidualBlock::bottleneck;
  const auto is_narrow = [](int64_t size) { return size % kReduction != 0; };
  if (full.cifar && is_bottleneck)
    return fault_against("layer_type", "cifar", "basic with {}", full);
  if (is_bottleneck && std::ranges::any_of(full.hidden_sizes, is_narrow))
    return fault_against("hidden_sizes", "layer_type", "multiples of 4 with {}", full);
  if (full.cifar && (full.embedding_size > full.hidden_sizes.front() ||
                     !std::ranges::is_sorted(full.hidden_sizes)))
    return fault_against("hidden_sizes", "embedding_size",
                         "none smaller than that before it, or than {}", full);
  if (has_torchvision_names(full) && !is_bottleneck)
    return fault_against(full.groups != 1 ? "groups" : "width_per_group", "layer_type",
                         full.groups != 1 ? "1 with {}" : "64 with {}", full);
  return std::nullopt;
}

// A counter of PyTorch's, which a fixed share of new statistics does not need. Of norms that the
// convolutions hold, their readers take what they need (infer/weight_layouts.h).
bool skips(const ModelSpec& spec, std::string_view stored) {
  const auto has = [&](std::string_view part) { return stored.find(part) != stored.npos; };
  const bool is_norm = has(".normalization.") || stored.starts_with("bn1.") || has(".bn1.") ||
                       has(".bn2.") || has(".bn3.") || has(".downsample.1.");
  return stored.ends_with(".num_batches_tracked") || (spec.folded_norms && is_norm);
}

// "0.layer.1." of torchvision's "0.bn2.", behind the stage.
std::string renamed_block(std::string_view rest) {
  constexpr std::pair<std::string_view, std::string_view> kNames[] = {
      {"conv1.", "layer.0.convolution."},         {"bn1.", "layer.0.normalization."},
      {"conv2.", "layer.1.convolution."},         {"bn2.", "layer.1.normalization."},
      {"conv3.", "layer.2.convolution."},         {"bn3.", "layer.2.normalization."},
      {"downsample.0.", "shortcut.convolution."}, {"downsample.1.", "shortcut.normalization."}};
  const size_t dot = rest.find('.') + 1;
  for (const auto& [from, to] : kNames) {
    if (rest.substr(dot).starts_with(from))
      return fmt::format("{}{}{}", rest.substr(0, dot), to, rest.substr(dot + from.size()));
  }
  return std::string(rest);
}

// torchvision's names, and those of a model without a head.
std::string renamed(const ModelSpec& spec, std::string_view stored) {
  constexpr std::string_view kStage = "layer";
  const auto behind = [&](std::string_view prefix) { return stored.substr(prefix.size()); };
  if (has_short_names(spec))
    return std::string(stored.starts_with("module.") ? behind("module.") : stored);
  if (stored.starts_with("embedder.") || stored.starts_with("encoder."))
    return fmt::format("resnet.{}", stored);
  if (stored.starts_with("fc.")) return fmt::format("classifier.1.{}", behind("fc."));
  const std::string first = "resnet.embedder.embedder.";
  if (stored.starts_with("conv1.")) return first + fmt::format("convolution.{}", behind("conv1."));
  if (stored.starts_with("bn1.")) return first + fmt::format("normalization.{}", behind("bn1."));
  const size_t dot = kStage.size() + 1;
  if (!stored.starts_with(kStage) || stored.size() < dot + 2 || stored[dot] != '.')
    return std::string(stored);
  return fmt::format("resnet.encoder.stages.{}.layers.{}", stored[dot - 1] - '1',
                     renamed_block(stored.substr(dot + 1)));
}

std::string norm_behind(std::string_view convolution) {
  constexpr std::string_view kOurs = "convolution", kShort = "conv", kShortcut = "downsample.0";
  const size_t at = convolution.rfind('.') + 1;
  const std::string_view last = convolution.substr(at);
  if (convolution.ends_with(kShortcut)) return fmt::format("{}1", convolution.substr(0, at));
  if (last == kOurs) return fmt::format("{}normalization", convolution.substr(0, at));
  return fmt::format("{}bn{}", convolution.substr(0, at), last.substr(kShort.size()));
}

// A convolution with half its window around each pixel, and the norm behind it.
struct Convolved {
  int64_t n_out, kernel = 3, stride = 1, groups = 1;
};
Picture convolved(Blocks& b, const Picture& x, std::string_view path, const Convolved& c) {
  const bool is_folded = b.spec().folded_norms;
  const Picture y = convolution(b, x, path, c.n_out,
                                {.kernel = c.kernel,
                                 .stride = c.stride,
                                 .padding = c.kernel / 2,
                                 .groups = c.groups,
                                 .bias = bias_if(is_folded)});
  return is_folded ? y : batch_norm(b, y, norm_behind(path));
}

// Picture that a block adds its convolutions' result to.
Picture shortcut(Blocks& b, const Picture& x, int64_t n_out, int64_t stride) {
  if (b.shape(x.x)[1] == n_out && stride == 1) return x;
  if (b.spec().cifar) return subsampled(b, x, stride, n_out);
  const bool is_short = has_torchvision_names(b.spec());
  return convolved(b, x, is_short ? "downsample.0" : "shortcut.convolution", {n_out, 1, stride});
}

std::vector<Convolved> convolutions_of(const ModelSpec& spec, int64_t n_out, int64_t stride) {
  if (spec.layer_type == ResidualBlock::basic) return {{n_out, 3, stride}, {n_out, 3, 1}};
  const int64_t narrow = n_out / kReduction * spec.width_per_group / kUsualWidth * spec.groups;
  const bool is_early = spec.downsample_in_bottleneck;
  return {{narrow, 1, is_early ? stride : 1},
          {narrow, 3, is_early ? 1 : stride, spec.groups},
          {n_out, 1, 1}};
}

Picture block(Blocks& b, const Picture& x, int64_t n_out, int64_t stride) {
  const std::vector<Convolved> all = convolutions_of(b.spec(), n_out, stride);
  const bool is_short = has_short_names(b.spec());
  Picture y = x;
  for (size_t i = 0; i < all.size(); ++i) {
    const std::string path =
        is_short ? fmt::format("conv{}", i + 1) : fmt::format("layer.{}.convolution", i);
    y = convolved(b, y, path, all[i]);
    if (i + 1 < all.size()) y = relu(b, y, fmt::format("act.{}", i));
  }
  return relu(b, add(b, y, shortcut(b, x, n_out, stride)), "activation");
}

Picture first_convolution(Blocks& b) {
  const ModelSpec& spec = b.spec();
  const Picture pixels = picture_of(b, b.input("pixels"));
  const bool is_short = has_short_names(spec);
  b.enter(-1, is_short ? "" : "resnet.embedder.embedder.");
  if (spec.cifar)
    return relu(b, convolved(b, pixels, "conv1", {spec.embedding_size}), "activation");
  const std::string_view path = is_short ? "conv1" : "convolution";
  const Picture x = relu(b, convolved(b, pixels, path, {spec.embedding_size, 7, 2}), "activation");
  return max_pool(b, x, "pooler", {.kernel = 3, .stride = 2, .padding = 1});
}

Outputs build(Blocks& b) {
  const ModelSpec& spec = b.spec();
  const bool is_short = has_short_names(spec);
  Picture x = first_convolution(b);
  int layer = 0;
  for (size_t s = 0; s < spec.depths.size(); ++s) {
    const bool is_halved = s > 0 || spec.downsample_in_first_stage;
    for (int64_t i = 0; i < spec.depths[s]; ++i) {
      b.enter(layer++, is_short ? fmt::format("layer{}.{}.", s + 1, i)
                                : fmt::format("resnet.encoder.stages.{}.layers.{}.", s, i));
      x = block(b, x, spec.hidden_sizes[s], is_halved && i == 0 ? 2 : 1);
    }
  }
  b.enter(-1, "");
  const ValueId y = mean_of_pixels(b, x);
  if (head_of(spec).head == ModelHead::features) return {y};
  const std::string_view classifier = spec.cifar                    ? "linear"
                                      : has_torchvision_names(spec) ? "fc"
                                                                    : "classifier.1";
  return {b.linear(y, classifier, spec.classes, {.bias = WithBias::yes, .whole_path = true})};
}

}  // namespace

constinit const ModelDef kResnet =
    convolutional_model({.kind = ModelKind::resnet,
                         .name = "resnet",
                         .architecture = "ResNetForImageClassification",
                         .prefix = "",
                         .head = "classifier.1.weight",
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
