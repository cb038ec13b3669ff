#include "infer/processor_files.h"

#include <algorithm>

#include "base/error.h"
#include "nn/vision.h"

namespace octet {
namespace {

constexpr const char* kNested = "image_processor";
constexpr const char *kPatch = "patch_size", *kSelect = "vision_feature_select_strategy",
                     *kAdditional = "num_additional_image_tokens", *kLength = "image_seq_len";
// Keys of both; the chat template is another reader's. `image_token` is the text of config.json's
// token: transformers ends with an error where it is another one.
constexpr std::string_view kKnown[] = {kNested, "processor_class", "chat_template", "image_token"};
constexpr std::string_view kLlavaKeys[] = {kPatch, kSelect, kAdditional};

std::optional<Json> processor_json(const Files& files, const std::string& folder,
                                   std::string& path) {
  path = join_path(folder, kProcessor);
  if (!files.exists(path)) return std::nullopt;
  Json json = parse_json(files.read_text(path), path);
  if (!json.is_object())
    throw Error(ErrorCode::bad_data, "[images] {}: expected an object, got {}", path,
                json.type_name());
  return json;
}

class ProcessorKeys {
 public:
  ProcessorKeys(const JsonObject& json, const ModelSpec& spec) : json_(json), spec_(spec) {}

  void check() const {
    const bool is_llava = spec_.kind == ModelKind::llava;
    for (const auto& [key, value] : json_.items()) {
      const bool is_known = std::ranges::count(kKnown, key) > 0 ||
                            (is_llava ? std::ranges::count(kLlavaKeys, key) > 0 : key == kLength);
      if (!is_known && !asks_nothing(value)) refuse(key, "no such key");
    }
    const int64_t rows = picture_rows(spec_);
    if (is_llava) return check_patches(rows);
    if (json_.has(kLength) && json_.integer(kLength) != rows)
      refuse(kLength, fmt::format("the {} rows that a picture has in the model", rows));
  }

 private:
  [[noreturn]] void refuse(const std::string& key, const std::string& expected) const {
    throw Error(ErrorCode::bad_data, "[images] {}: '{}': expected {}, got {}", json_.where(), key,
                expected, json_.at(key).dump());
  }

  void check_patches(int64_t rows) const {
    const std::string select = json_.string_or(kSelect, "full");
    if (select != "default" && select != "full") refuse(kSelect, "default or full");
    if (!json_.has(kPatch)) return;
    const int64_t patch = json_.integer(kPatch);
    if (patch < 1) refuse(kPatch, "a positive number");
    const int64_t side = spec_.image_size / patch, more = json_.integer_or(kAdditional, 0),
                  n = side * side + more - (select == "default" ? 1 : 0);
    if (n != rows)
      refuse(kPatch, fmt::format("with {} {} and {} {} the {} rows that a picture has in the model,"
                                 " not {}",
                                 kAdditional, more, kSelect, select, rows, n));
  }

  const JsonObject& json_;
  const ModelSpec& spec_;
};

}  // namespace

std::optional<ImageProcessorFile> image_processor_file(const Files& files,
                                                       const std::string& folder) {
  std::string path;
  if (const auto json = processor_json(files, folder, path)) {
    const auto at = json->find(kNested);
    if (at != json->end() && !at->is_null())
      return ImageProcessorFile{*at, fmt::format("{}: {}", path, kNested)};
  }
  path = join_path(folder, kImageProcessor);
  if (!files.exists(path)) return std::nullopt;
  return ImageProcessorFile{parse_json(files.read_text(path), path), path};
}

void check_processor_file(const Files& files, const std::string& folder, const ModelSpec& spec) {
  std::string path;
  const auto json = processor_json(files, folder, path);
  if (json) ProcessorKeys(JsonObject(*json, path), spec).check();
}

std::string processor_text(const ModelSpec& spec, const std::string& mark) {
  Json json;
  if (spec.kind == ModelKind::llava) {
    const bool selects = spec.vision_select == VisionSelect::patches;
    json = {{"processor_class", "LlavaProcessor"},
            {"image_token", mark},
            {kPatch, spec.patch_size},
            {kSelect, selects ? "default" : "full"},
            {kAdditional, spec.tower == VisionTower::clip ? 1 : 0}};
    if (spec.projector_downsample > 1) json.erase(kPatch);  // which would say how many rows
  } else {
    json = {{"processor_class", "Idefics3Processor"}, {kLength, picture_rows(spec)}};
  }
  return json.dump(2) + "\n";
}

}  // namespace octet
