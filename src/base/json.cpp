#include "base/json.h"

#include <utility>

#include "base/error.h"
#include "base/input_limits.h"
#include "base/json_reader.h"

namespace octet {

Json parse_json(std::string_view text, const std::string& where) {
  const JsonTextLimits& limits = input_limits().json;
  return JsonReader<Json>({.depth = limits.max_depth, .values = limits.max_values}, where)
      .read(text);
}

Json parse_own_json(std::string_view text) {
  return Json::parse(text, nullptr, /*allow_exceptions=*/false);
}

JsonObject::JsonObject(const Json& json, std::string where)
    : json_(json), where_(std::move(where)) {
  if (!json.is_object()) {
    throw Error(ErrorCode::bad_data, "[json] {}: expected an object, got {}", where_,
                json.type_name());
  }
}

void JsonObject::wrong(const std::string& key, std::string_view expected) const {
  const auto it = json_.find(key);
  if (it == json_.end()) {
    throw Error(ErrorCode::bad_data, "[json] {}: expected key '{}', got none", where_, key);
  }
  const std::string got = it->is_binary()       ? what_is_unread(*it)
                          : it->is_structured() ? it->type_name()
                                                : it->dump();
  throw Error(ErrorCode::bad_data, "[json] {}: '{}' must be {}, got {}", where_, key, expected,
              got);
}

bool JsonObject::has(const std::string& key) const {
  const auto it = json_.find(key);
  return it != json_.end() && !it->is_null();
}

bool JsonObject::is_null(const std::string& key) const {
  const auto it = json_.find(key);
  return it != json_.end() && it->is_null();
}

int64_t JsonObject::integer(const std::string& key) const {
  const auto it = json_.find(key);
  if (it == json_.end() || !it->is_number_integer()) wrong(key, "an integer");
  if (it->is_number_unsigned() && it->get<uint64_t>() > INT64_MAX) wrong(key, "below 2^63");
  return it->get<int64_t>();
}

uint64_t JsonObject::unsigned_integer(const std::string& key) const {
  const auto it = json_.find(key);
  if (it == json_.end() || !it->is_number_unsigned()) wrong(key, "an integer of 0 or more");
  return it->get<uint64_t>();
}

double JsonObject::number(const std::string& key) const {
  const auto it = json_.find(key);
  if (it == json_.end() || !it->is_number()) wrong(key, "a number");
  return it->get<double>();
}

std::string JsonObject::string(const std::string& key) const {
  const auto it = json_.find(key);
  if (it == json_.end() || !it->is_string()) wrong(key, "a string");
  return it->get<std::string>();
}

bool JsonObject::boolean_or(const std::string& key, bool fallback) const {
  if (!has(key)) return fallback;
  if (!json_.at(key).is_boolean()) wrong(key, "true or false");
  return json_.at(key).get<bool>();
}

const Json& JsonObject::at(const std::string& key) const {
  const auto it = json_.find(key);
  if (it == json_.end()) wrong(key, "present");
  return *it;
}

JsonObject JsonObject::object(const std::string& key) const {
  const Json& value = at(key);
  if (!value.is_object()) wrong(key, "an object");
  return JsonObject(value, where_);
}

}  // namespace octet
