// The one table of a model's fields: the keys of a run file ("model.hidden"), the keys of a
// config.json (HfKey, which each model lists), bounds and documentation of ModelSpec's members.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/bounds.h"
#include "nn/spec.h"

namespace octet {

// A member that is one of several: their names in run files, in the order of the values, and those
// of config.json, the one that is written before others of the same value.
struct HfName {
  std::string_view name;
  int value;
};
struct ModelEnum {
  int (*get)(const ModelSpec&);
  void (*set)(ModelSpec&, int);
  std::vector<std::string> (*names)();
  std::span<const HfName> hf_names;
};

// Lists of integers, each within the bounds; empty stands for what resolved() fills in.
using ModelList = std::vector<int64_t> ModelSpec::*;
using ModelNumbers = std::vector<double> ModelSpec::*;  // the same of numbers
using ModelMember = std::variant<int64_t ModelSpec::*, double ModelSpec::*, bool ModelSpec::*,
                                 const ModelEnum*, ModelList, ModelNumbers>;

// Source of a field's value besides a config.json.
enum class FieldOrigin : uint8_t {
  key,      // a run file's key
  derived,  // the same, where 0 stands for what resolved() fills in
  run,      // no key: the run decides it (max_positions: its sequences)
};

struct ModelField {
  std::string_view path;  // in a run file: "model.hidden"
  ModelMember member;
  Bounds bounds;  // of a number that is given
  FieldOrigin origin;
  // True if a model of this kind has the field of this name; nullptr: all have.
  bool (*used)(const ModelSpec& spec, std::string_view name);
  std::string_view unit, help;

  constexpr std::string_view name() const { return path.substr(path.find('.') + 1); }
  bool is_of(const ModelSpec& spec) const { return used == nullptr || used(spec, name()); }
};

std::span<const ModelField> model_fields();
// The field with this name ("rope_scaling.factor"); there must be one.
const ModelField& model_field(std::string_view name);

// The value in words: "512", "0.1", "llama3".
std::string field_text(const ModelField& field, const ModelSpec& spec);
// The value where it is a number, and what a number must be: "an integer in [1, 4096]".
std::optional<double> number_of(const ModelField& field, const ModelSpec& spec);
std::string number_text(const ModelField& field);

// How a model's config.json spells one field. "rope/factor" is the key of the object that
// transformers 5 names rope_parameters, and others rope_scaling.
struct HfKey {
  std::string_view field;              // ModelField::name()
  std::string_view key;                // as it is written
  std::string_view newer = {};         // one that is read first; in rope/ it is written too
  std::string_view older = {};         // one that is read where there is no other
  std::optional<double> absent = {};   // the value of a file without the key; nothing: it must be
  bool zero_is_null = false;           // an explicit null is a 0, and a 0 is written as null
  std::string_view gate = {};          // a switch: where it is false, or not there, the field is 0
  std::span<const HfName> names = {};  // of an enumeration, in the place of ModelEnum::hf_names
  std::string_view absent_as = {};     // a field above, whose value one without the key has
};

// A key that would change the model, and the value, as JSON, that leaves it as we build it. Any
// other value, unless it is `also`, is refused.
struct HfNeutral {
  std::string_view key;
  std::string_view value;
  std::string_view also = {};
};

// A key whose value follows from the fields: it is written, and any other is refused. One that is
// another name of a field's key, for transformers too, is not written.
struct HfFollower {
  std::string_view key;
  std::string value;        // as JSON
  std::string absent = {};  // what a file without the key says by it; "": as `value`
  bool is_written = true;
};
// One that is another name of a field's key.
HfFollower follower_name(std::string_view key, double value);

}  // namespace octet
