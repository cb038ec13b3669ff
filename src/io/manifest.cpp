#include "io/manifest.h"

#include "base/error.h"
#include "base/json.h"

namespace octet {
namespace {

int64_t counter(const JsonObject& json, const std::string& key) {
  const int64_t value = json.integer(key);
  if (value < 0) {
    throw Error(ErrorCode::bad_data, "[manifest] {}: '{}' must be 0 or more, got {}", json.where(),
                key, value);
  }
  return value;
}

KeyValues key_values(const JsonObject& json, const std::string& key) {
  KeyValues values;
  const JsonObject object = json.object(key);
  for (const auto& item : json.at(key).items()) values[item.key()] = object.string(item.key());
  return values;
}

}  // namespace

std::string manifest_to_json(const Manifest& manifest) {
  const Json json = {
      {"format", "octet-checkpoint"},
      {"version", {{"major", manifest.major}, {"minor", manifest.minor}}},
      {"step", manifest.step},
      {"attempted", manifest.attempted},
      {"skipped", manifest.skipped},
      {"tokens", manifest.tokens},
      {"seed", manifest.seed},
      {"recipe", manifest.recipe},
      {"loader", manifest.loader},
      {"extra", manifest.extra},
      {"tensors", {{"model", manifest.model_tensors}, {"optim", manifest.optim_tensors}}},
  };
  return json.dump(1) + "\n";
}

Manifest parse_manifest(const std::string& text, const std::string& where) {
  const Json root = parse_json(text, where);
  const JsonObject json(root, where);
  if (json.string("format") != "octet-checkpoint") {
    throw Error(ErrorCode::bad_data, "[manifest] {}: 'format' must be octet-checkpoint, got '{}'",
                where, json.string("format"));
  }
  Manifest manifest;
  const JsonObject version = json.object("version");
  manifest.major = counter(version, "major");
  manifest.minor = counter(version, "minor");
  if (manifest.major != Manifest::kMajor) {
    throw Error(ErrorCode::bad_data, "[manifest] {}: expected format version {}.x, got {}.{}",
                where, Manifest::kMajor, manifest.major, manifest.minor);
  }
  manifest.step = counter(json, "step");
  manifest.attempted = counter(json, "attempted");
  manifest.skipped = counter(json, "skipped");
  manifest.tokens = counter(json, "tokens");
  manifest.seed = json.unsigned_integer("seed");
  manifest.recipe = json.string("recipe");
  manifest.loader = key_values(json, "loader");
  manifest.extra = key_values(json, "extra");
  const JsonObject tensors = json.object("tensors");
  manifest.model_tensors = key_values(tensors, "model");
  manifest.optim_tensors = key_values(tensors, "optim");
  return manifest;
}

}  // namespace octet
