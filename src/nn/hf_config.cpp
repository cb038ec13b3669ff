#include "nn/hf_config.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/json.h"
#include "nn/hf_keys.h"
#include "nn/hf_layer_lists.h"
#include "nn/hf_parts.h"
#include "nn/hf_words.h"
#include "nn/list.h"
#include "nn/model.h"
#include "nn/shape.h"

namespace octet {
namespace {

// The first of them that is there is read: newer files have rope_parameters alone.
constexpr const char* kRopeObjects[] = {"rope_scaling", "rope_parameters"};

// A field by its key here, for messages; one that the model has no key for, by its own name.
std::string name_here(const ModelDef& def, std::string_view field) {
  const HfKey* key = find_hf_key(def, field);
  return key == nullptr ? std::string(field) : without_object(key->key);
}

std::vector<HfFollower> followers_of(const ModelDef& def, const ModelSpec& spec) {
  return def.hf_followers == nullptr ? std::vector<HfFollower>() : def.hf_followers(spec);
}

// The keys of a model that are read or must be neutral; "rope/..." as in the lists.
std::vector<HfNeutral> neutrals_of(const ModelDef& def) {
  std::vector<HfNeutral> neutrals(def.hf_neutrals.begin(), def.hf_neutrals.end());
  const std::vector<HfKey> keys = hf_keys_of(def);
  const std::vector<HfFollower> followers = followers_of(def, {});
  for (const HfNeutral& common : kCommonNeutrals) {
    const bool is_own = std::ranges::count(def.hf_neutrals, common.key, &HfNeutral::key) > 0 ||
                        std::ranges::count(followers, common.key, &HfFollower::key) > 0;
    const bool is_used = is_own || std::ranges::any_of(keys, [&](const HfKey& key) {
                           return common.key == key.key || common.key == key.newer ||
                                  common.key == key.older || common.key == key.gate;
                         });
    if (!is_used) neutrals.push_back(common);
  }
  return neutrals;
}

std::set<std::string_view> known_keys(const ModelDef& def) {
  std::set<std::string_view> known(std::begin(kHarmlessKeys), std::end(kHarmlessKeys));
  known.insert(std::begin(kReadElsewhere), std::end(kReadElsewhere));
  known.insert({"auto_map", "layer_types", "no_rope_layers", "pad_token_id"});
  if (def.full_every > 0) known.insert(kWindowPattern);
  if (find_hf_key(def, "linear_layers") != nullptr) known.insert(kAttentionInterval);
  known.insert(std::begin(kRopeObjects), std::end(kRopeObjects));
  if (def.sees_pictures) known.insert({kTextPart, kVisionPart, kPictureLength});
  for (const HfKey& key : hf_keys_of(def)) known.insert({key.key, key.newer, key.older, key.gate});
  for (const HfNeutral& neutral : neutrals_of(def)) known.insert(neutral.key);
  for (const HfFollower& one : followers_of(def, {})) known.insert(one.key);
  return known;
}

class Reader {
 public:
  explicit Reader(const JsonObject& json) : json_(json) {}

  HfConfig read() {
    const ModelDef& def = model();
    spec_.kind = def.kind;
    spec_.norm_eps = def.usual_norm_eps;  // of kinds without a key for it
    refuse_code();
    if (def.sees_pictures) read_text();
    expect_rope_of_layers(def, json_);
    if (!def.heads.empty()) read_head(def);
    if (def.positions_follow_pad && json_.is_null("pad_token_id"))
      bad("pad_token_id", "an id, from whose positions are counted on", "null");
    for (const HfKey& key : hf_keys_of(def)) {
      const ModelField& field = model_field(key.field);
      if (!field.is_of(spec_) || key.key == kLayerTypesKey) continue;
      read_field(field, key);
      if (key.field == "rope_scaling.original_max_position") expect_one_length(key);
    }
    for (const HfNeutral& neutral : neutrals_of(def)) expect_neutral(def, neutral);
    if (json_.has("no_rope_layers")) read_no_rope_layers(def, json_, spec_);
    (json_.has(kLayerTypesKey) ? read_layer_types : take_usual_layers)(def, json_, spec_);
    if (const auto fault = fault_of(spec_))
      bad(name_here(def, fault->field), fault->expected_of(name_here(def, fault->other)),
          fault->got);
    for (const HfFollower& one : followers_of(def, filled(spec_)))
      expect_neutral(def, {.key = one.key, .value = one.value}, one.absent);
    return {filled(spec_), unknown_keys(def)};
  }

 private:
  // Object that a key stands in, and its last part.
  struct Place {
    JsonObject object;
    std::string key;
  };

  [[noreturn]] void bad(std::string_view key, std::string_view expected,
                        std::string_view got) const {
    bad_key(json_, key, expected, got);
  }

  const ModelDef& model() const {
    const std::string type = json_.string("model_type");
    if (const ModelDef* def = find_model(type)) return *def;
    std::vector<std::string_view> known;
    for (const ModelDef* def : all_models()) known.push_back(def->name);
    const std::string_view nearest = nearest_kind(type);
    bad("model_type",
        fmt::format("one of {} (docs/models.md){}{}", fmt::join(known, ", "),
                    nearest.empty() ? "" : "; the nearest is ", nearest),
        Json(type).dump());
  }

  // Place where this spelling of a key would stand; nothing where its object is not there.
  std::optional<Place> place_of(std::string_view spelling) const {
    if (const size_t slash = spelling.find('/'); !is_rope(spelling) && slash != spelling.npos) {
      const std::string part(spelling.substr(0, slash));
      if (!json_.has(part)) return std::nullopt;
      return Place{json_.object(part), std::string(spelling.substr(slash + 1))};
    }
    if (!is_rope(spelling)) return Place{json_, std::string(spelling)};
    const auto object = rope_object();
    const bool is_of_windows = is_window_rope(spelling);
    if (!object || (is_of_windows && !is_by_layer())) return std::nullopt;
    const JsonObject rope = json_.object(*object);
    if (!is_by_layer()) return Place{rope, without_object(spelling)};
    const char* const layers = is_of_windows ? kWindowLayers : kFullLayers;
    if (!rope.has(layers)) return std::nullopt;
    return Place{rope.object(layers), without_object(spelling)};
  }

  bool is_by_layer() const { return has_rope_by_layer(model(), json_); }

  std::optional<std::string> rope_object() const {
    if (is_by_layer()) return kRopeByLayer;
    for (const char* name : kRopeObjects) {
      if (json_.has(name) && json_.at(name) != Json::object()) return name;
    }
    return std::nullopt;
  }

  void refuse_code() const {
    if (json_.has("auto_map") && !json_.at("auto_map").empty())
      bad("auto_map", "none, as code of a model folder is never run", json_.at("auto_map").dump());
  }

  std::optional<Place> find(const HfKey& key) const {
    for (const std::string_view spelling : {key.newer, key.key, key.older}) {
      auto place = spelling.empty() ? std::nullopt : place_of(spelling);
      if (place && place->object.has(place->key)) return place;
    }
    return std::nullopt;
  }

  // transformers reads the one beside rope_parameters, of phi3 that alone; not where layers differ.
  void expect_one_length(const HfKey& key) const {
    const bool is_first_in_rope = is_rope(key.newer);
    if (!is_first_in_rope && find_hf_key(model(), "window_rope_theta") == nullptr) return;
    const std::string name = without_object(key.key);
    const auto in_rope = place_of(is_first_in_rope ? key.newer : key.key);
    const bool is_in_rope = in_rope && in_rope->object.has(name);
    if (!is_in_rope && is_first_in_rope) return;
    const Json inner = is_in_rope ? in_rope->object.at(name) : Json(spec_.max_positions);
    const char* const where = is_in_rope ? "as in" : "without it in";
    if (json_.has(name) && json_.at(name) != inner)
      bad(name, fmt::format("{} {} rope_parameters", inner.dump(), where), json_.at(name).dump());
    if (is_first_in_rope && !json_.has(name) && inner != *key.absent)
      bad(name, "it beside rope_parameters, too", "none");
  }

  void read_field(const ModelField& field, const HfKey& key) {
    const auto set = [&](double value) { std::visit(SetAbsent{spec_, value}, field.member); };
    if (!key.gate.empty() && !json_.boolean_or(std::string(key.gate), false)) return set(0);
    const auto found = find(key);
    const bool is_truth = std::holds_alternative<bool ModelSpec::*>(field.member);
    if (!found && (key.zero_is_null || is_truth) && json_.is_null(std::string(key.key)))
      return set(0);
    if (!found && key.absent) return set(*key.absent);
    // By transformers' rule it follows from lengths.
    const bool is_longrope = spec_.rope_scaling == RopeScaling::longrope;
    if (!found && is_longrope && key.field == "rope_scaling.factor") return set(0);
    if (!found && !key.absent_as.empty())
      return set(std::visit(AsNumber{spec_}, model_field(key.absent_as).member));
    const auto place = found ? found : place_of(key.key);  // reading says that it is missing
    if (!place) bad(without_object(key.key), "rope_parameters that have it", "none");
    const auto* choice = std::get_if<const ModelEnum*>(&field.member);
    if (choice != nullptr)
      return read_choice(*place, **choice, key.names.empty() ? (*choice)->hf_names : key.names);
    std::visit([&](const auto& member) { read_member(*place, member); }, field.member);
    // 0 stands for another value in a run file alone.
    const auto number = number_of(field, spec_);
    if (number && !is_within(field.bounds, *number))
      bad(place->key, number_text(field), field_text(field, spec_));
    const bool stands_for_another =
        field.origin == FieldOrigin::derived || (key.zero_is_null && !is_rope(key.key));
    if (number && *number == 0 && stands_for_another)
      bad(place->key, key.zero_is_null ? "null, or a number above 0" : "a number above 0", "0");
  }

  void read_member(const Place& place, int64_t ModelSpec::*member) {
    spec_.*member = integer_or_side(place.object, place.key);
  }
  void read_member(const Place& place, double ModelSpec::*member) {
    spec_.*member = place.object.number(place.key);
  }
  void read_member(const Place& place, bool ModelSpec::*member) {
    spec_.*member = place.object.boolean_or(place.key, false);
  }
  void read_member(const Place& place, ModelList member) {
    const Json& list = place.object.at(place.key);
    const auto is_count = [](const Json& one) { return one.is_number_integer(); };
    if (!list.is_array() || list.empty() || !std::ranges::all_of(list, is_count))
      bad(place.key, "a list of integers", list.dump());
    (spec_.*member).clear();
    for (const Json& one : list) (spec_.*member).push_back(one.get<int64_t>());
  }
  void read_member(const Place& place, ModelNumbers member) {
    const Json& list = place.object.at(place.key);
    const auto is_number = [](const Json& one) { return one.is_number(); };
    if (!list.is_array() || list.empty() || !std::ranges::all_of(list, is_number))
      bad(place.key, "a list of numbers", list.dump());
    (spec_.*member).clear();
    for (const Json& one : list) (spec_.*member).push_back(one.get<double>());
  }
  void read_member(const Place& place, const ModelEnum* member) {
    read_choice(place, *member, member->hf_names);
  }
  void read_choice(const Place& place, const ModelEnum& member, std::span<const HfName> names) {
    const std::string name = place.object.string(place.key);
    if (name == kRelu && find_hf_key(model(), "mlp_relu")) return void(spec_.mlp_relu = true);
    const auto at = std::ranges::find(names, name, &HfName::name);
    if (at != names.end()) return member.set(spec_, at->value);
    std::vector<std::string_view> known;
    for (const HfName& hf : names) known.push_back(hf.name);
    bad(place.key, fmt::format("one of {}", fmt::join(known, ", ")), Json(name).dump());
  }

  struct AsNumber {
    const ModelSpec& spec;
    template <typename T>
    double operator()(T ModelSpec::*m) const {
      return static_cast<double>(spec.*m);
    }
    template <typename T>
    double operator()(std::vector<T> ModelSpec::*) const {
      return 0;
    }
    double operator()(const ModelEnum* m) const { return m->get(spec); }
  };

  struct SetAbsent {
    ModelSpec& spec;
    double value;
    template <typename T>
    void operator()(T ModelSpec::*m) const {
      spec.*m = static_cast<T>(value);
    }
    void operator()(ModelList m) const { (spec.*m).clear(); }
    void operator()(ModelNumbers m) const { (spec.*m).clear(); }
    void operator()(const ModelEnum* m) const { m->set(spec, static_cast<int>(value)); }
  };

  // `absent`: what a file without the key says by it; "": nothing.
  void expect_neutral(const ModelDef& def, const HfNeutral& neutral,
                      const std::string& absent = "") const {
    const std::optional<Place> place = place_of(neutral.key);
    if (!place) return;
    const bool is_there = place->object.has(place->key);
    const bool is_no_truth = place->object.is_null(place->key) && neutral.value == "true";
    if (!is_there && absent.empty() && !is_no_truth) return;
    const Json value = is_there      ? place->object.at(place->key)
                       : is_no_truth ? Json()
                                     : parse_own_json(absent);
    for (const std::string_view expected : {neutral.value, neutral.also}) {
      if (!expected.empty() && value == parse_own_json(expected)) return;
    }
    bad(place->key, fmt::format("{} for model_type {}", neutral.value, def.name),
        value.is_structured() ? value.type_name() : value.dump());
  }

  // The decoder of a model with pictures, as of a folder of its own.
  void read_text() {
    const ModelKind kind = spec_.kind;
    const HfKey& key = *find_hf_key(model(), "text");
    read_field(model_field(key.field), key);
    const JsonObject text = json_.object(std::string(kTextPart));
    const HfConfig read = Reader(text).read();
    const ModelKind own = spec_.text;
    spec_ = read.spec;
    spec_.kind = kind;
    spec_.text = own;
    for (const std::string& one : read.unknown)
      unknown_of_parts_.push_back(fmt::format("{}.{}", kTextPart, one));
    const std::set<std::string_view> known = known_keys(model());
    for (const auto& [name, value] : json_.object(std::string(kVisionPart)).items()) {
      const std::string path = fmt::format("{}/{}", kVisionPart, name);
      if (!known.contains(path) && !known.contains(name) && !is_of_other_towers(name))
        unknown_of_parts_.push_back(fmt::format("{}.{}", kVisionPart, name));
    }
  }

  // The class of transformers that wrote the file says what stands on the encoder; a classifier's
  // classes are those that have a name.
  void read_head(const ModelDef& def) {
    const Json names = json_.has("architectures") ? json_.at("architectures") : Json::array();
    if (!names.is_array()) bad("architectures", "a list", names.type_name());
    if (!names.empty()) {
      const auto head = head_of_class(def, names[0].is_string() ? names[0].get<std::string>() : "");
      const auto known = fmt::format("one of {}", fmt::join(head_classes(def), ", "));
      if (!head) bad("architectures", known, names[0].dump());
      spec_.head = *head == def.heads.front().head ? ModelHead::text : *head;
    }
    if (json_.has("id2label") && json_.at("id2label").is_object())
      spec_.classes = std::max<int64_t>(1, std::ssize(json_.at("id2label")));
    if (json_.has("num_labels"))  // counts, whatever the names
      spec_.classes = std::max<int64_t>(1, json_.integer("num_labels"));
    const ModelHead head = spec_.head == ModelHead::text ? def.heads.front().head : spec_.head;
    if (head != ModelHead::classes) return void(spec_.classes = ModelSpec().classes);
    if (const ModelHead wanted = classifier_head(def); wanted != head) spec_.head = wanted;
    if (spec_.head == ModelHead::value) spec_.classes = ModelSpec().classes;
  }

  // A classifier's head, as transformers has it: by problem_type, else with one class as a number.
  ModelHead classifier_head(const ModelDef& def) const {
    const auto has = [&](ModelHead head) {
      return std::ranges::count(def.heads, head, &HeadDef::head) > 0;
    };
    if (!json_.has("problem_type"))
      return spec_.classes == 1 && has(ModelHead::value) ? ModelHead::value : ModelHead::classes;
    std::vector<std::string_view> known;
    for (const auto& [head, name] : kProblemTypes) {
      if (!has(head)) continue;
      if (json_.at("problem_type") == name) return head;
      known.push_back(name);
    }
    bad("problem_type", fmt::format("one of {}", fmt::join(known, ", ")),
        json_.at("problem_type").dump());
  }

  std::vector<std::string> unknown_keys(const ModelDef& def) const {
    const std::set<std::string_view> known = known_keys(def);
    std::vector<std::string> unknown = unknown_of_parts_;
    for (const auto& [key, value] : json_.items()) {
      if (!known.contains(key)) unknown.push_back(key);
    }
    const auto object = rope_object();
    if (!object) return unknown;
    const auto check = [&](const std::string& where, const Json& rope, std::string_view prefix) {
      for (const auto& [key, value] : rope.items()) {
        if (value.is_object()) bad(where + key, "one set of values for all layers", "object");
        if (!known.contains(std::string(prefix) + key)) unknown.push_back(where + key);
      }
    };
    const Json& rope = json_.at(*object);
    if (!is_by_layer()) {
      check(*object + ".", rope, kRope);
      return unknown;
    }
    for (const auto& [layers, values] : rope.items()) {
      const std::string where = *object + "." + layers;
      const bool is_of_windows = layers == kWindowLayers;
      if (!values.is_object() || (!is_of_windows && layers != kFullLayers))
        bad(where, "an object for full_attention and one for sliding_attention",
            values.type_name());
      check(where + ".", values, is_of_windows ? kWindowRope : kRope);
    }
    return unknown;
  }

  const JsonObject& json_;
  ModelSpec spec_;
  std::vector<std::string> unknown_of_parts_ = {};
};

}  // namespace

HfConfig parse_hf_config_and_keys(const std::string& text, const std::string& where) {
  Json root = parse_json(text, where);
  complete_parts(root);
  take_layer_config(root, where);
  const JsonObject json(root, where);
  return Reader(json).read();
}

ModelSpec parse_hf_config(const std::string& text, const std::string& where) {
  return parse_hf_config_and_keys(text, where).spec;
}

ModelSpec read_hf_config(const Files& files, const std::string& model_folder) {
  const std::string path = join_path(model_folder, "config.json");
  return parse_hf_config(files.read_text(path), path);
}

}  // namespace octet
