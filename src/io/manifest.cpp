#include "io/manifest.h"

#include "base/error.h"
#include "base/hash.h"
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

TensorUses tensor_uses(const JsonObject& json) {
  TensorUses uses;
  const JsonObject object = json.object("uses");
  for (const auto& item : json.at("uses").items()) {
    const JsonObject one = object.object(item.key());
    uses[item.key()] = {one.string("use"), one.string("owner")};
  }
  return uses;
}

Json uses_json(const TensorUses& uses) {
  Json json = Json::object();
  for (const auto& [name, use] : uses) json[name] = {{"owner", use.owner}, {"use", use.use}};
  return json;
}

void read_version_1_1(const JsonObject& json, Manifest& manifest) {
  manifest.config = key_values(json, "config");
  manifest.machine = key_values(json, "machine");
  manifest.uses = tensor_uses(json);
  const std::string hash = config_hash(manifest.config);
  if (json.string("config_hash") != hash) {
    throw Error(ErrorCode::bad_data, "[manifest] {}: 'config_hash' must be {} for 'config', got {}",
                json.where(), hash, json.string("config_hash"));
  }
}

}  // namespace

std::string config_hash(const KeyValues& config) {
  Xxh64 hash;
  for (const auto& [key, value] : config) hash.update(fmt::format("{}: {}\n", key, value));
  return fmt::format("{:016x}", hash.digest());
}

std::string manifest_to_json(const Manifest& manifest) {
  Json json = {
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
  if (manifest.minor >= 1) {
    json["config"] = manifest.config;
    json["config_hash"] = config_hash(manifest.config);
    json["machine"] = manifest.machine;
    json["uses"] = uses_json(manifest.uses);
  }
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
  if (manifest.skipped > manifest.attempted) {
    throw Error(ErrorCode::bad_data,
                "[manifest] {}: 'skipped' must be at most 'attempted' = {}, got {}", where,
                manifest.attempted, manifest.skipped);
  }
  manifest.tokens = counter(json, "tokens");
  manifest.seed = json.unsigned_integer("seed");
  manifest.recipe = json.string("recipe");
  manifest.loader = key_values(json, "loader");
  manifest.extra = key_values(json, "extra");
  const JsonObject tensors = json.object("tensors");
  manifest.model_tensors = key_values(tensors, "model");
  manifest.optim_tensors = key_values(tensors, "optim");
  if (manifest.minor >= 1) read_version_1_1(json, manifest);
  return manifest;
}

}  // namespace octet
