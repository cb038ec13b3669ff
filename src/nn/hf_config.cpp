#include "nn/hf_config.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "base/json.h"
#include "nn/fields.h"
#include "nn/model.h"
#include "nn/shape.h"

namespace octet {
namespace {

constexpr std::string_view kRope = "rope/";
constexpr const char* kRopeObjects[] = {"rope_parameters", "rope_scaling"};

std::vector<HfKey> keys_of(const ModelDef& def) {
  std::vector<HfKey> keys(def.hf_keys.begin(), def.hf_keys.end());
  keys.insert(keys.end(), def.own_hf_keys.begin(), def.own_hf_keys.end());
  return keys;
}

std::string without_object(std::string_view key) {
  return std::string(key.starts_with(kRope) ? key.substr(kRope.size()) : key);
}

// A field by its key here, for messages; one that the model has no key for, by its own name.
std::string name_here(const ModelDef& def, std::string_view field) {
  const std::vector<HfKey> keys = keys_of(def);
  const auto at = std::ranges::find(keys, field, &HfKey::field);
  return at == keys.end() ? std::string(field) : without_object(at->key);
}

class Reader {
 public:
  explicit Reader(const JsonObject& json) : json_(json) {}

  ModelSpec read() {
    const ModelDef& def = model();
    spec_.kind = def.kind;
    for (const HfKey& key : keys_of(def)) {
      const ModelField& field = model_field(key.field);
      if (field.used == nullptr || field.used(spec_)) read_field(field, key);
    }
    for (const HfNeutral& neutral : def.hf_neutrals) expect_neutral(def, neutral);
    if (const auto fault = fault_of(spec_)) {
      bad(name_here(def, fault->field), fault->expected_of(name_here(def, fault->other)),
          fault->got);
    }
    return filled(spec_);
  }

 private:
  // Where a key stands, and its last part.
  struct Place {
    JsonObject object;
    std::string key;
  };

  [[noreturn]] void bad(std::string_view key, std::string_view expected,
                        std::string_view got) const {
    throw Error(ErrorCode::bad_data, "[config.json] {}: '{}': expected {}, got {}", json_.where(),
                key, expected, got);
  }

  const ModelDef& model() const {
    const std::string type = json_.string("model_type");
    if (const ModelDef* def = find_model(type)) return *def;
    std::vector<std::string_view> known;
    for (const ModelDef* def : models()) known.push_back(def->name);
    bad("model_type", fmt::format("one of {}", fmt::join(known, ", ")), Json(type).dump());
  }

  // Where this spelling of a key would stand; nothing where its object is not there.
  std::optional<Place> place_of(std::string_view spelling) const {
    if (!spelling.starts_with(kRope)) return Place{json_, std::string(spelling)};
    for (const char* name : kRopeObjects) {
      if (json_.has(name)) return Place{json_.object(name), without_object(spelling)};
    }
    return std::nullopt;
  }

  std::optional<Place> find(const HfKey& key) const {
    for (const std::string_view spelling : {key.newer, key.key, key.older}) {
      const auto place = spelling.empty() ? std::nullopt : place_of(spelling);
      if (place && place->object.has(place->key)) return place;
    }
    return std::nullopt;
  }

  void read_field(const ModelField& field, const HfKey& key) {
    const auto found = find(key);
    if (!found && key.absent) return std::visit(SetAbsent{spec_, *key.absent}, field.member);
    const auto place = found ? found : place_of(key.key);  // reading says that it is missing
    CHECK(place.has_value());
    std::visit([&](const auto& member) { read_member(*place, member); }, field.member);
    // 0 stands for another value in a run file alone.
    if (const auto number = number_of(field, spec_); number && !is_within(field.bounds, *number))
      bad(place->key, number_text(field), field_text(field, spec_));
  }

  void read_member(const Place& place, int64_t ModelSpec::*member) {
    spec_.*member = place.object.integer(place.key);
  }
  void read_member(const Place& place, double ModelSpec::*member) {
    spec_.*member = place.object.number(place.key);
  }
  void read_member(const Place& place, bool ModelSpec::*member) {
    spec_.*member = place.object.boolean_or(place.key, false);
  }
  void read_member(const Place& place, const ModelEnum* member) {
    const std::string name = place.object.string(place.key);
    const auto at = std::ranges::find(member->hf_names, name, &HfName::name);
    if (at != member->hf_names.end()) return member->set(spec_, at->value);
    std::vector<std::string_view> known;
    for (const HfName& hf : member->hf_names) known.push_back(hf.name);
    bad(place.key, fmt::format("one of {}", fmt::join(known, ", ")), Json(name).dump());
  }

  struct SetAbsent {
    ModelSpec& spec;
    double value;
    void operator()(int64_t ModelSpec::*m) const { spec.*m = static_cast<int64_t>(value); }
    void operator()(double ModelSpec::*m) const { spec.*m = value; }
    void operator()(bool ModelSpec::*m) const { spec.*m = value != 0; }
    void operator()(const ModelEnum* m) const { m->set(spec, static_cast<int>(value)); }
  };

  void expect_neutral(const ModelDef& def, const HfNeutral& neutral) const {
    const std::string key(neutral.key);
    if (!json_.has(key)) return;
    const Json& value = json_.at(key);
    const std::string got = value.is_structured() ? value.type_name() : value.dump();
    if (got == neutral.value || got == neutral.also) return;
    bad(key, fmt::format("{} for model_type {}", neutral.value, def.name), got);
  }

  const JsonObject& json_;
  ModelSpec spec_;
};

struct JsonValue {
  const ModelSpec& spec;
  Json operator()(int64_t ModelSpec::*member) const { return spec.*member; }
  Json operator()(double ModelSpec::*member) const { return spec.*member; }
  Json operator()(bool ModelSpec::*member) const { return spec.*member; }
  Json operator()(const ModelEnum* member) const {
    const auto at = std::ranges::find(member->hf_names, member->get(spec), &HfName::value);
    return std::string(at->name);
  }
};

}  // namespace

ModelSpec parse_hf_config(const std::string& text, const std::string& where) {
  const Json root = parse_json(text, where);
  const JsonObject json(root, where);
  return Reader(json).read();
}

ModelSpec read_hf_config(const Files& files, const std::string& model_folder) {
  const std::string path = join_path(model_folder, "config.json");
  return parse_hf_config(files.read_text(path), path);
}

std::string hf_config_text(const ModelSpec& spec) {
  const ModelSpec full = resolved(spec);
  const ModelDef& def = model_def(full.kind);
  Json json;
  json["architectures"] = Json::array({std::string(def.architecture)});
  json["model_type"] = std::string(def.name);
  Json rope = nullptr;
  for (const HfKey& key : keys_of(def)) {
    const ModelField& field = model_field(key.field);
    if (field.used != nullptr && !field.used(full)) continue;
    const bool is_rope = key.key.starts_with(kRope);
    if (is_rope && full.rope_scaling == RopeScaling::none) continue;
    (is_rope ? rope : json)[without_object(key.key)] = std::visit(JsonValue{full}, field.member);
  }
  if (def.positions == Positions::rotary) json["rope_scaling"] = rope;
  for (const HfNeutral& neutral : def.hf_neutrals)
    json[std::string(neutral.key)] = Json::parse(neutral.value);
  return json.dump(1) + "\n";
}

}  // namespace octet
