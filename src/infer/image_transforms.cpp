#include "infer/image_transforms.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include "base/error.h"
#include "base/json.h"

namespace octet {
namespace {

// Pillow's numbers.
constexpr int64_t kLanczos = 1, kBilinear = 2, kBicubic = 3;
// The bounds of a run's data.images.
constexpr int64_t kMaxSize = 1 << 14;
constexpr double kMinStd = 1e-6, kMaxNumber = 1e3;

// Defaults of image processors of transformers 5.24, where the file does not say. `stretches`: a
// size without names is that of both sides, else of the shorter one. `crop_share`: the size is the
// crop's, and the shorter side becomes int(size / crop_pct), whose default this is; from 384 pixels
// on both sides become the size. 0: the processor has no crop_pct. `splits`: pictures become
// squares of max_image_size, the parts of a large one beside the whole.
struct Processor {
  std::string_view name;
  int64_t resample;
  bool stretches, crops;
  int64_t size;
  std::array<double, 3> mean, std_dev;
  double crop_share = 0;
  bool splits = false;
};
constexpr std::array<double, 3> kHalves = {0.5, 0.5, 0.5};
constexpr std::array<double, 3> kClipMean = {0.48145466, 0.4578275, 0.40821073};
constexpr std::array<double, 3> kClipStd = {0.26862954, 0.26130258, 0.27577711};
constexpr Processor kProcessors[] = {
    {"ViT", kBilinear, true, false, 224, kHalves, kHalves},
    {"DeiT", kBicubic, true, true, 256, kHalves, kHalves},
    {"Beit", kBicubic, true, false, 224, kHalves, kHalves},
    {"CLIP", kBicubic, false, true, 224, kClipMean, kClipStd},
    {"Bit", kBicubic, false, true, 224, kClipMean, kClipStd},
    {"ConvNext", kBicubic, false, false, 384, kHalves, kHalves, 224.0 / 256},
    {"MobileNetV2", kBilinear, false, true, 256, kHalves, kHalves},
    {"Siglip", kBicubic, true, false, 224, kHalves, kHalves},
    {"Llava", kBicubic, false, true, 224, kClipMean, kClipStd},
    {"Idefics3", kLanczos, true, false, 0, kHalves, kHalves, 0, true},
    {"SmolVLM", kLanczos, true, false, 0, kHalves, kHalves, 0, true},
};
constexpr int64_t kLeastStretched = 384;
constexpr const char* kCropShare = "crop_pct";
constexpr const char *kSplitting = "do_image_splitting", *kLargest = "max_image_size",
                     *kPad = "do_pad";
constexpr const char* kLongest = "longest_edge";

// Keys that change no pixel that a model of Octet's sees, and those that another function reads.
constexpr std::string_view kRead[] = {"image_processor_type",
                                      "feature_extractor_type",
                                      "do_resize",
                                      "size",
                                      "default_to_square",
                                      "resample",
                                      "do_center_crop",
                                      "crop_size",
                                      "do_rescale",
                                      "rescale_factor",
                                      "do_normalize",
                                      "image_mean",
                                      "image_std"};
constexpr std::string_view kNeutral[] = {
    "processor_class",  // of texts and pictures together, which names this file's
    "do_convert_rgb",   // pictures always have the model's channels
    "data_format",      // how the library's caller hands pictures over, and gets them
    "input_data_format",
    "return_tensors",
    "disable_grouping",
    "device",
    "image_seq_length",
    "use_fast",          // which of the library's two implementations
    "do_reduce_labels",  // of segmentation
    "_valid_processor_keys"};

// The words of a refusal: what was expected of a key, and what it says.
[[noreturn]] void refuse(const JsonObject& config, std::string_view key,
                         const std::string& expected) {
  throw Error(ErrorCode::bad_data, "[images] {}: '{}': expected {}, got {}", config.where(), key,
              expected, config.at(std::string(key)).dump());
}

void check_keys(const JsonObject& config, const Processor* processor) {
  const bool has_share = processor != nullptr && processor->crop_share > 0;
  const bool splits = processor != nullptr && processor->splits;
  const auto is_in = [](const auto& list, const std::string& key) {
    return std::ranges::find(list, key) != std::end(list);
  };
  for (const auto& [key, value] : config.items()) {
    if (asks_nothing(value) || is_in(kRead, key) || is_in(kNeutral, key)) continue;
    if (has_share && key == kCropShare) continue;
    // Squares of one size need no padding.
    if (splits && (key == kSplitting || key == kLargest || key == kPad)) continue;
    throw Error(ErrorCode::bad_data, "[images] {}: '{}' is not supported, got {}", config.where(),
                key, value.dump());
  }
}

// By its name, or as the model's kind has one; nullptr for another, of which the file must say all.
const Processor* processor_of(const JsonObject& config, const ModelSpec& spec,
                              const Log& log = {}) {
  const bool is_of_imagenet = spec.kind == ModelKind::resnet && !spec.cifar;
  constexpr std::pair<ModelKind, std::string_view> kKinds[] = {
      {ModelKind::deit, "DeiT"},
      {ModelKind::clip_vision_model, "CLIP"},
      {ModelKind::siglip_vision_model, "Siglip"},
      {ModelKind::mobilenet_v2, "MobileNetV2"},
      {ModelKind::llava, "CLIP"},
      {ModelKind::idefics3, "Idefics3"}};
  const auto* own =
      std::ranges::find(kKinds, spec.kind, &std::pair<ModelKind, std::string_view>::first);
  const std::string_view kind = own != std::end(kKinds) ? own->second
                                : is_of_imagenet        ? "ConvNext"
                                                        : "ViT";
  const std::string former = config.string_or("feature_extractor_type", std::string(kind));
  std::string type = config.string_or("image_processor_type", former);
  for (const std::string_view end : {"ImageProcessor", "FeatureExtractor"})
    type = type.substr(0, type.find(end));
  const auto at = std::ranges::find(kProcessors, type, &Processor::name);
  if (at != std::end(kProcessors)) return &*at;
  log.warning("[images] {}: '{}ImageProcessor' is not known: pictures become what its keys say",
              config.where(), type);
  return nullptr;
}

// Settings of the file, or else of the processor that it names.
class ProcessorFile {
 public:
  ProcessorFile(const JsonObject& config, const ModelSpec& spec, const Processor* processor)
      : config_(config), spec_(spec), processor_(processor) {}

  ImagesConfig read(const Log& log) const {
    expect_pixels_to_one();
    if (processor_ != nullptr && processor_->splits) expect_one_square();
    ImagesConfig result{.filter = filter()};
    take_size(result, log);
    result.mean = numbers("image_mean", 0, &Processor::mean);
    result.std_dev = numbers("image_std", 1, &Processor::std_dev);
    expect_numbers("image_mean", result.mean, -kMaxNumber);
    expect_numbers("image_std", result.std_dev, kMinStd);
    return result;
  }

 private:
  const Processor& known(const char* key) const {
    if (processor_ != nullptr) return *processor_;
    throw Error(ErrorCode::bad_data,
                "[images] {}: expected '{}' beside this image_processor_type, got none",
                config_.where(), key);
  }

  // null is no, as in transformers; absent: `otherwise`.
  bool does(const char* key, bool otherwise) const {
    return config_.is_null(key) ? false : config_.boolean_or(key, otherwise);
  }

  void expect_pixels_to_one() const {
    if (!does("do_rescale", true)) refuse(config_, "do_rescale", "true");
    const double factor = config_.number_or("rescale_factor", 1.0 / 255);
    if (std::abs(factor * 255 - 1) >= 1e-6) refuse(config_, "rescale_factor", "1/255");
  }

  // All pictures have to be the model's size, so that there is one square a picture.
  void expect_one_square() const {
    const auto expect = [&](const char* key, const Json& value, const char* usual) {
      if (!config_.has(key)) {
        throw Error(ErrorCode::bad_data, "[images] {}: '{}': expected {}, got none, which means {}",
                    config_.where(), key, value.dump(), usual);
      }
      if (config_.at(key) != value) refuse(config_, key, value.dump());
    };
    const int64_t size = spec_.image_size;
    expect(kSplitting, false, "true");
    expect(kLargest, {{kLongest, size}}, "364");
    if (does("do_resize", true))
      expect("size", {{"height", size}, {"width", size}}, "1456 of the longer side");
  }

  ImageFilter filter() const {
    const int64_t number =
        config_.has("resample") ? config_.integer("resample") : known("resample").resample;
    if (number == kBicubic) return ImageFilter::bicubic;
    if (number != kBilinear && does("do_resize", true))
      refuse(config_, "resample", "2 (bilinear) or 3 (bicubic)");
    return ImageFilter::bilinear;
  }

  // Numbers of `key` where pixels are normalized; else what leaves them as they are.
  std::vector<double> numbers(const char* key, double neutral,
                              std::array<double, 3> Processor::*otherwise) const {
    if (!does("do_normalize", true)) return {neutral};
    if (!config_.has(key)) {
      const std::array<double, 3>& own = known(key).*otherwise;
      return own == kHalves ? std::vector<double>{0.5}
                            : std::vector<double>(own.begin(), own.end());
    }
    const Json& list = config_.at(key);
    if (list.is_number()) return {list.get<double>()};
    std::vector<double> values;
    for (const Json& value : list) {
      if (value.is_number()) values.push_back(value.get<double>());
    }
    if (!list.is_array() || values.empty() || values.size() != list.size())
      refuse(config_, key, "a list of numbers");
    return values;
  }

  void expect_numbers(const char* key, const std::vector<double>& values, double least) const {
    const bool are_within = std::ranges::all_of(
        values, [&](double value) { return value >= least && value <= kMaxNumber; });
    const bool are_enough = values.size() == 1 || std::ssize(values) == spec_.channels;
    if (!config_.has(key) || (are_within && are_enough)) return;
    refuse(config_, key,
           fmt::format("1 or {} numbers from {} to {}", spec_.channels, least, kMaxNumber));
  }

  // How large a picture becomes: by its shorter side, or with "height" and "width" by both. The
  // square in its middle is what the model reads.
  void take_size(ImagesConfig& to, const Log& log) const {
    const bool crops = does("do_center_crop", processor_ != nullptr && processor_->crops);
    if (!does("do_resize", true)) {
      if (crops) refuse(config_, "do_resize", "true beside do_center_crop");
      log.warning(
          "[images] {}: 'do_resize' is false: pictures of another size than the model's {} "
          "are resized all the same",
          config_.where(), spec_.image_size);
      return;
    }
    if (crops && config_.has("crop_size")) expect_crop();
    if (processor_ != nullptr && processor_->crop_share > 0) return take_crop_share(to);
    read_size(to, crops);
    if (!crops && !to.stretch && config_.has("size")) {
      log.warning(
          "[images] {}: 'size' is of the shorter edge, and no crop is asked for: of a picture that "
          "is no square the middle is taken",
          config_.where());
    }
    if (!crops && to.stretch && to.size != spec_.image_size && config_.has("size"))
      refuse(config_, "size", fmt::format("the model's {} pixels", spec_.image_size));
    if (config_.has("size") && (to.size < spec_.image_size || to.size > kMaxSize))
      refuse(config_, "size",
             fmt::format("from the model's {} to {} pixels", spec_.image_size, kMaxSize));
  }

  void take_crop_share(ImagesConfig& to) const {
    to.size = processor_->size;
    if (config_.has("size")) read_size(to, true);
    const double share = config_.number_or(kCropShare, processor_->crop_share);
    const double shorter = static_cast<double>(spec_.image_size) / share;
    if (!(share > 0 && share <= 1) || shorter > static_cast<double>(kMaxSize))
      refuse(config_, kCropShare,
             fmt::format("at most 1, and a shorter side of at most {} pixels", kMaxSize));
    if (to.stretch || to.size != spec_.image_size)
      refuse_size(fmt::format("the model's {} pixels of the shorter edge", spec_.image_size));
    to.stretch = to.size >= kLeastStretched;
    if (!to.stretch) to.size = static_cast<int64_t>(shorter);
  }

  // Also where the file leaves it to the processor.
  [[noreturn]] void refuse_size(const std::string& expected) const {
    if (config_.has("size")) refuse(config_, "size", expected);
    throw Error(ErrorCode::bad_data, "[images] {}: 'size': expected {}, got none, which means {}",
                config_.where(), expected, processor_->size);
  }

  void read_size(ImagesConfig& to, bool crops) const {
    if (!config_.has("size")) {
      const Processor& own = known("size");
      to.stretch = own.stretches;
      to.size = crops && own.size > spec_.image_size ? own.size : 0;
      return;
    }
    const Json& size = config_.at("size");
    if (size.is_number_integer()) {
      to.stretch = config_.has("default_to_square") || processor_ == nullptr
                       ? config_.boolean_or("default_to_square", true)
                       : processor_->stretches;
      to.size = size.get<int64_t>();
      return;
    }
    const auto has = [&](const char* key) {
      const auto at = size.find(key);
      return at != size.end() && at->is_number_integer();
    };
    const bool is_square = size.is_object() && has("height") && has("width");
    if (!size.is_object() || size.size() != (is_square ? 2u : 1u) ||
        (!is_square && !has("shortest_edge")))
      refuse(config_, "size", "height and width, or shortest_edge");
    to.stretch = is_square;
    to.size = size.at(is_square ? "height" : "shortest_edge").get<int64_t>();
    if (is_square && size.at("width") != to.size)
      refuse(config_, "size", "as much height as width");
  }

  void expect_crop() const {
    const Json& crop = config_.at("crop_size");
    const Json square = {{"height", spec_.image_size}, {"width", spec_.image_size}};
    if (crop != square && crop != spec_.image_size)
      refuse(config_, "crop_size", fmt::format("the model's {} pixels", spec_.image_size));
  }

  const JsonObject& config_;
  const ModelSpec& spec_;
  const Processor* processor_;
};

const std::vector<double>& range(const char* key, const std::vector<double>& values) {
  if (values.size() == 2 && values[0] <= values[1]) return values;
  throw Error(ErrorCode::invalid_argument,
              "data.images.{}: expected two numbers, the smaller one first, got [{}]", key,
              fmt::join(values, ", "));
}

}  // namespace

std::span<const std::string_view> neutral_image_keys() {
  return kNeutral;
}

ImageTransforms transforms_of(const ImagesConfig& images) {
  const auto scale = range("scale", images.scale), ratio = range("ratio", images.ratio);
  return {.resize = images.size,
          .stretches = images.stretch,
          .filter = images.filter,
          .crop = images.crop,
          .pad = images.pad,
          .part = {.scale = {scale[0], scale[1]}, .ratio = {ratio[0], ratio[1]}},
          .flip = images.flip,
          .mean = {images.mean.begin(), images.mean.end()},
          .std_dev = {images.std_dev.begin(), images.std_dev.end()}};
}

ImagesConfig evaluation_images(const Files& files, const ModelSource& source, const Log& log) {
  if (source.run) return source.run->data.images;
  if (model_def(source.spec.kind).sees_pictures)
    check_processor_file(files, source.folder, source.spec);
  const auto file = image_processor_file(files, source.folder);
  if (!file) return {};
  const JsonObject config(file->json, file->where);
  const Processor* const processor = processor_of(config, source.spec, log);
  check_keys(config, processor);
  return ProcessorFile(config, source.spec, processor).read(log);
}

ImageTransforms evaluation_transforms(const Files& files, const ModelSource& source,
                                      const Log& log) {
  return transforms_of(evaluation_images(files, source, log));
}

std::string image_processor_text(const ImagesConfig& images, const ModelSpec& spec) {
  const auto by_channel = [&](std::vector<double> values) {
    if (values.size() == 1) values.resize(static_cast<size_t>(spec.channels), values.front());
    return values;
  };
  const auto square = [](int64_t side) { return Json{{"height", side}, {"width", side}}; };
  const int64_t size = images.size > 0 ? images.size : spec.image_size;
  // These of the library's processors do it in all versions; adapters have no config.json whose
  // model_type would choose one.
  const char* type = images.stretch ? "DeiTImageProcessor" : "BitImageProcessor";
  Json json = {{"image_processor_type", type},
               {"do_resize", true},
               {"size", images.stretch ? square(size) : Json{{"shortest_edge", size}}},
               {"resample", images.filter == ImageFilter::bicubic ? kBicubic : kBilinear},
               {"do_center_crop", true},
               {"crop_size", square(spec.image_size)},
               {"do_rescale", true},
               {"rescale_factor", 1.0 / 255},
               {"do_normalize", true},
               {"image_mean", by_channel(images.mean)},
               {"image_std", by_channel(images.std_dev)}};
  if (spec.kind == ModelKind::idefics3 && images.stretch && size == spec.image_size) {
    json["image_processor_type"] = "Idefics3ImageProcessor";
    json["do_pad"] = true;
    json[kSplitting] = false;
    json[kLargest] = {{kLongest, size}};
    for (const char* key : {"do_center_crop", "crop_size"}) json.erase(key);
  }
  return json.dump(2) + "\n";
}

}  // namespace octet
