// Strict JSON for headers, manifests and model configurations: duplicate keys and trailing bytes
// are errors.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace octet {

using Json = nlohmann::json;

// Throws Error{bad_data}, "[json] WHERE: ...", for text that is no JSON value, repeats a key in
// an object, or nests deeper than 64 levels. Values that json_reader.h lists are kept unread.
Json parse_json(std::string_view text, const std::string& where);

// A file that Octet itself writes: discarded (is_discarded) where it is no whole JSON value.
Json parse_own_json(std::string_view text);

// True if a key with this value asks for nothing: null, false, or an empty list or object.
inline bool asks_nothing(const Json& value) {
  return value.is_null() || value == false || (value.is_structured() && value.empty());
}

// Typed access to the keys of one object; errors name the file and the key.
class JsonObject {
 public:
  JsonObject(const Json& json, std::string where);  // throws unless json is an object

  bool has(const std::string& key) const;      // present and not null
  bool is_null(const std::string& key) const;  // present and null
  int64_t integer(const std::string& key) const;
  uint64_t unsigned_integer(const std::string& key) const;
  double number(const std::string& key) const;
  std::string string(const std::string& key) const;

  int64_t integer_or(const std::string& key, int64_t fallback) const {
    return has(key) ? integer(key) : fallback;
  }
  double number_or(const std::string& key, double fallback) const {
    return has(key) ? number(key) : fallback;
  }
  bool boolean_or(const std::string& key, bool fallback) const;
  std::string string_or(const std::string& key, const std::string& fallback) const {
    return has(key) ? string(key) : fallback;
  }

  const Json& at(const std::string& key) const;
  JsonObject object(const std::string& key) const;
  nlohmann::detail::iteration_proxy<Json::const_iterator> items() const { return json_.items(); }
  const std::string& where() const { return where_; }

 private:
  [[noreturn]] void wrong(const std::string& key, std::string_view expected) const;

  const Json& json_;
  std::string where_;
};

}  // namespace octet
