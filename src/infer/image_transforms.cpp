#include "infer/image_transforms.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <string_view>

#include "base/error.h"
#include "base/json.h"

namespace octet {
namespace {

// Pillow's numbers.
constexpr int64_t kBilinear = 2, kBicubic = 3;

// Image processors that take a size without names for that of both sides; others, as CLIP's, take
// it for the shorter one's.
constexpr std::string_view kStretching[] = {"ViT", "DeiT", "Beit"};

// Where pixels are normalized; else what leaves them as they are.
std::vector<double> numbers(const JsonObject& config, const std::string& key, double neutral) {
  if (!config.boolean_or("do_normalize", true)) return {neutral};
  if (!config.has(key)) return {0.5};
  const Json& list = config.at(key);
  std::vector<double> values;
  for (const Json& value : list) {
    if (value.is_number()) values.push_back(value.get<double>());
  }
  if (!list.is_array() || values.empty() || values.size() != list.size()) {
    throw Error(ErrorCode::bad_data, "[images] {}: '{}': expected a list of numbers, got {}",
                config.where(), key, list.dump());
  }
  return values;
}

// A folder of a vision transformer that names no processor has its own.
bool stretches(const JsonObject& config) {
  const std::string former = config.string_or("feature_extractor_type", "ViT");
  const std::string type = config.string_or("image_processor_type", former);
  return std::ranges::any_of(kStretching,
                             [&](std::string_view name) { return type.starts_with(name); });
}

// How large a picture becomes: by its shorter side, or with "height" and "width" by both.
void take_size(const JsonObject& config, ImagesConfig& to) {
  if (!config.boolean_or("do_resize", true) || !config.has("size")) return;
  if (config.at("size").is_number_integer()) {
    to.stretch = stretches(config);
    to.size = config.integer("size");
    return;
  }
  const JsonObject size = config.object("size");
  if (!size.has("shortest_edge") && !size.has("height")) return;
  to.stretch = !size.has("shortest_edge");
  to.size = size.integer(to.stretch ? "height" : "shortest_edge");
  if (!to.stretch || size.integer("width") == to.size) return;
  throw Error(ErrorCode::bad_data, "[images] {}: 'size': expected as much height as width, got {}",
              config.where(), config.at("size").dump());
}

ImageFilter filter_of(const JsonObject& config, const Log& log) {
  const int64_t filter = config.integer_or("resample", kBilinear);
  if (filter == kBicubic) return ImageFilter::bicubic;
  if (filter != kBilinear && config.boolean_or("do_resize", true)) {
    log.warning(
        "[images] {}: 'resample' {} is not known: pictures of another size are resized "
        "by 2, bilinear",
        config.where(), filter);
  }
  return ImageFilter::bilinear;
}

void expect_pixels_to_one(const JsonObject& config) {
  const double factor = config.number_or("rescale_factor", 1.0 / 255);
  if (config.boolean_or("do_rescale", true) && std::abs(factor * 255 - 1) < 1e-6) return;
  throw Error(ErrorCode::bad_data,
              "[images] {}: expected pixels that are divided by 255, got rescale_factor {}",
              config.where(), factor);
}

const std::vector<double>& range(const char* key, const std::vector<double>& values) {
  if (values.size() == 2 && values[0] <= values[1]) return values;
  throw Error(ErrorCode::invalid_argument,
              "data.images.{}: expected two numbers, the smaller one first, got [{}]", key,
              fmt::join(values, ", "));
}

}  // namespace

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
  const std::string path = join_path(source.folder, kImageProcessor);
  if (!files.exists(path)) return {};
  const Json json = parse_json(files.read_text(path), path);
  const JsonObject config(json, path);
  expect_pixels_to_one(config);
  ImagesConfig result{.filter = filter_of(config, log)};
  take_size(config, result);
  result.mean = numbers(config, "image_mean", 0);
  result.std_dev = numbers(config, "image_std", 1);
  return result;
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
  const Json json = {{"do_resize", true},
                     {"size", images.stretch ? square(size) : Json{{"shortest_edge", size}}},
                     {"resample", images.filter == ImageFilter::bicubic ? kBicubic : kBilinear},
                     {"do_center_crop", true},
                     {"crop_size", square(spec.image_size)},
                     {"do_rescale", true},
                     {"rescale_factor", 1.0 / 255},
                     {"do_normalize", true},
                     {"image_mean", by_channel(images.mean)},
                     {"image_std", by_channel(images.std_dev)}};
  return json.dump(2) + "\n";
}

}  // namespace octet
