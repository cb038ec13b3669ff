#include "cli/serve_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/json_reader.h"
#include "base/nearest.h"
#include "cli/serve_error.h"

namespace octet {
namespace {

std::string shown_value(const OrderedJson& got) {
  constexpr size_t kLongest = 60;
  if (got.is_null()) return "none";
  if (got.is_binary()) return what_is_unread(got);
  if (got.is_structured() && got.size() > 8) return got.type_name();
  std::string text = json_line(got);
  if (text.size() > kLongest) text = json_line(OrderedJson(text.substr(0, kLongest))) + "...";
  return text;
}

}  // namespace

OrderedJson parse_body(std::string_view body) {
  try {
    OrderedJson json = parse_ordered_json(body, "the body");
    if (json.is_object()) return json;
    throw ServeError{
        .message = fmt::format("expected a JSON object as the body, got {}", json.type_name())};
  } catch (const Error& error) {
    throw ServeError{.message = error.what()};
  }
}

ServeFields::ServeFields(const OrderedJson& json, std::string where)
    : json_(json), where_(std::move(where)) {
  if (!json.is_object()) {
    throw ServeError{
        .message = fmt::format("{}: expected an object, got {}", where_, shown_value(json)),
        .param = where_};
  }
}

std::string ServeFields::name_of(const std::string& name) const {
  return where_.empty() ? name : where_ + "." + name;
}

void ServeFields::fail(const std::string& name, const std::string& expected,
                       const OrderedJson& got) const {
  throw ServeError{
      .message = fmt::format("{}: expected {}, got {}", name_of(name), expected, shown_value(got)),
      .param = name_of(name)};
}

OrderedJson ServeFields::any(const std::string& name) {
  known_.push_back(name);
  const auto it = json_.find(name);
  return it == json_.end() ? OrderedJson(nullptr) : *it;
}

std::optional<int64_t> ServeFields::integer(const std::string& name, int64_t min, int64_t max) {
  const OrderedJson value = any(name);
  if (value.is_null()) return std::nullopt;
  if (!value.is_number_integer() || value < min || value > max)
    fail(name, fmt::format("an integer from {} to {}", min, max), value);
  return value.get<int64_t>();
}

std::optional<double> ServeFields::number(const std::string& name, double min, double max) {
  const OrderedJson value = any(name);
  if (value.is_null()) return std::nullopt;
  const double number = value.is_number() ? value.get<double>() : NAN;
  if (!(number >= min && number <= max))
    fail(name, fmt::format("a number from {} to {}", min, max), value);
  return number;
}

bool ServeFields::boolean(const std::string& name) {
  const OrderedJson value = any(name);
  if (value.is_null()) return false;
  if (!value.is_boolean()) fail(name, "true or false", value);
  return value.get<bool>();
}

std::string ServeFields::text(const std::string& name) {
  const OrderedJson value = any(name);
  if (!value.is_string()) fail(name, "a text", value);
  return value.get<std::string>();
}

void ServeFields::label(const std::string& name) {
  if (!any(name).is_null()) text(name);
}

std::vector<std::string> ServeFields::texts(const std::string& name, int64_t max) {
  const OrderedJson value = any(name);
  if (value.is_null()) return {};
  const std::string expected = fmt::format("a text, or an array of at most {} texts", max);
  const OrderedJson all = value.is_string() ? OrderedJson::array({value}) : value;
  if (!all.is_array() || std::ssize(all) > max) fail(name, expected, value);
  std::vector<std::string> texts;
  for (const OrderedJson& one : all) {
    if (one.is_string()) texts.push_back(one.get<std::string>());
    if (!one.is_string() || texts.back().empty())
      fail(name, expected + ", none of them empty", value);
  }
  return texts;
}

void ServeFields::object(const std::string& name, const std::function<void(ServeFields&)>& read) {
  const OrderedJson value = any(name);
  if (value.is_null()) return;
  ServeFields fields(value, name_of(name));
  read(fields);
  fields.refuse_others();
}

void ServeFields::nothing(const std::string& name, const std::vector<OrderedJson>& values) {
  const OrderedJson value = any(name);
  if (value.is_null() || std::ranges::find(values, value) != values.end()) return;
  std::string list = "none";
  for (const OrderedJson& one : values) list += " or " + json_line(one);
  fail(name, list + ", as nothing else of it is supported", value);
}

void ServeFields::refuse_others() const {
  for (const auto& [name, value] : json_.items()) {
    if (std::ranges::find(known_, name) != known_.end()) continue;
    const std::string hint = nearest_hint("; the nearest is ", name, known_);
    throw ServeError{.message = fmt::format("{}: no such field is known{}",
                                            shown_value(OrderedJson(name_of(name))), hint),
                     .param = name_of(name),
                     .code = "unknown_field"};
  }
}

}  // namespace octet
