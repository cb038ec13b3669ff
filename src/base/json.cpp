#include "base/json.h"

#include <utility>
#include <vector>

#include "base/error.h"

namespace octet {
namespace {

// The library copies and prints values by recursion: depth is bounded before the stack is.
constexpr size_t kMaxDepth = 64;
// Ten times the values of 100,000 tensors in a file's header. A value takes up to a hundred bytes
// of memory for two of text.
constexpr size_t kMaxValues = 10'000'000;

// The byte offset is the one part of the library's message that does not change between its
// versions.
[[noreturn]] void not_json(const std::string& where, size_t byte) {
  throw Error(ErrorCode::bad_data, "[json] {}: expected JSON, got a mistake at byte {}", where,
              byte);
}

// Makes the value in one pass: each event costs at most the search for a key in its object.
class Reader : public Json::json_sax_t {
 public:
  explicit Reader(const std::string& where) : where_(where) {}
  Json take() { return std::move(root_); }

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(Json::number_integer_t value) override { return add(value); }
  bool number_unsigned(Json::number_unsigned_t value) override { return add(value); }
  bool number_float(Json::number_float_t value, const std::string&) override { return add(value); }
  bool string(std::string& value) override { return add(std::move(value)); }
  bool binary(Json::binary_t& value) override { return add(std::move(value)); }
  bool start_object(size_t) override { return open(Json::object()); }
  bool start_array(size_t) override { return open(Json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(std::string& name) override {
    auto& members = open_.back()->get_ref<Json::object_t&>();
    const auto [member, added] = members.try_emplace(name);
    if (!added) {
      throw Error(ErrorCode::bad_data, "[json] {}: expected each key once, got '{}' again", where_,
                  name);
    }
    member_ = &member->second;
    return true;
  }

  // A number beyond a double comes here as well.
  bool parse_error(size_t byte, const std::string&, const Json::exception&) override {
    not_json(where_, byte);
  }

 private:
  Json& put(Json value) {
    if (++n_values_ > kMaxValues) {
      throw Error(ErrorCode::bad_data, "[json] {}: expected at most {} values, got more", where_,
                  kMaxValues);
    }
    if (open_.empty()) return root_ = std::move(value);
    Json& parent = *open_.back();
    if (parent.is_object()) return *member_ = std::move(value);
    parent.push_back(std::move(value));
    return parent.back();
  }
  bool add(Json value) {
    put(std::move(value));
    return true;
  }
  // Containers above do not move while one below is open.
  bool open(Json container) {
    if (open_.size() == kMaxDepth) {
      throw Error(ErrorCode::bad_data, "[json] {}: expected at most {} levels, got more", where_,
                  kMaxDepth);
    }
    open_.push_back(&put(std::move(container)));
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  const std::string& where_;
  Json root_;
  size_t n_values_ = 0;
  std::vector<Json*> open_;
  Json* member_ = nullptr;  // of the object that is open, where its next value goes
};

}  // namespace

Json parse_json(std::string_view text, const std::string& where) {
  Reader reader(where);
  Json::sax_parse(text.begin(), text.end(), &reader);
  return reader.take();
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
  throw Error(ErrorCode::bad_data, "[json] {}: '{}' must be {}, got {}", where_, key, expected,
              it->is_structured() ? it->type_name() : it->dump());
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

int64_t JsonObject::integer_or(const std::string& key, int64_t fallback) const {
  return has(key) ? integer(key) : fallback;
}

double JsonObject::number_or(const std::string& key, double fallback) const {
  return has(key) ? number(key) : fallback;
}

bool JsonObject::boolean_or(const std::string& key, bool fallback) const {
  if (!has(key)) return fallback;
  if (!json_.at(key).is_boolean()) wrong(key, "true or false");
  return json_.at(key).get<bool>();
}

std::string JsonObject::string_or(const std::string& key, const std::string& fallback) const {
  return has(key) ? string(key) : fallback;
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
