#include "base/ordered_json.h"

#include "base/error.h"
#include "base/input_limits.h"
#include "base/json_reader.h"

namespace octet {
namespace {

// Path of the unread value, "messages[0].content"; empty where everything within was read.
std::string find_unread(const OrderedJson& json, std::string& what) {
  const auto below = [](const std::string& step, const std::string& rest) {
    return rest.empty() || rest.front() == '[' ? step + rest : step + "." + rest;
  };
  if (json.is_binary()) {
    what = what_is_unread(json);
    return "";
  }
  for (const auto& [key, value] : json.items()) {
    if (!value.is_structured() && !value.is_binary()) continue;
    const std::string rest = find_unread(value, what);
    if (!what.empty()) return below(json.is_array() ? "[" + key + "]" : key, rest);
  }
  return "";
}

}  // namespace

OrderedJson parse_ordered_json(std::string_view text, const std::string& where) {
  const JsonReaderLimits limits{.depth = input_limits().json.max_chat_depth,
                                .values = SIZE_MAX,
                                .has_unique_keys = false,
                                .has_unread_integers = true};
  return JsonReader<OrderedJson>(limits, where).read(text);
}

std::string json_line(const OrderedJson& json) {
  return json.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

void expect_read(const OrderedJson& json, const std::string& name) {
  if (!json.is_structured() && !json.is_binary()) return;
  std::string what;
  const std::string path = find_unread(json, what);
  if (what.empty()) return;
  const bool needs_dot = !name.empty() && !path.empty() && path.front() != '[';
  throw Error(ErrorCode::bad_data, "[json] {}{}{}: expected a value that can be kept, got {}", name,
              needs_dot ? "." : "", path, what);
}

}  // namespace octet
