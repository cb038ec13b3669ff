#include "infer/class_names.h"

#include <optional>
#include <utility>

#include "base/parse_text.h"

namespace octet {
namespace {

constexpr const char *kNames = "id2label", *kNumbers = "label2id";

// A number, or a text that is one.
std::optional<int64_t> number_of(const Json& json) {
  if (json.is_number_integer()) return json.get<int64_t>();
  return json.is_string() ? parse_number<int64_t>(json.get<std::string>()) : std::nullopt;
}

std::optional<std::string> name_of(const Json& json) {
  if (json.is_string()) return json.get<std::string>();
  return json.is_number() ? std::optional(json.dump()) : std::nullopt;
}

std::vector<std::string> names_in(const Json& config, const char* key, int64_t n) {
  const Json all = config.is_object() ? config.value(key, Json()) : Json();
  if (!all.is_object() || std::ssize(all) != n) return {};
  std::vector<std::optional<std::string>> names(static_cast<size_t>(n));
  for (const auto& [first, second] : all.items()) {
    const bool is_by_number = key == kNames;
    const auto id = number_of(is_by_number ? Json(first) : second);
    if (!id || *id < 0 || *id >= n || names[static_cast<size_t>(*id)]) return {};
    auto name = is_by_number ? name_of(second) : std::optional(first);
    if (!name) return {};
    names[static_cast<size_t>(*id)] = std::move(name);
  }
  std::vector<std::string> result;
  result.reserve(names.size());
  for (auto& name : names) result.push_back(*std::move(name));
  return result;
}

}  // namespace

std::vector<std::string> class_names(const Json& config, int64_t n) {
  std::vector<std::string> names = names_in(config, kNames, n);
  return names.empty() ? names_in(config, kNumbers, n) : names;
}

bool class_names_differ(const Json& config) {
  const Json all = config.is_object() ? config.value(kNames, Json()) : Json();
  const int64_t n = std::ssize(all);
  const std::vector<std::string> names = names_in(config, kNames, n),
                                 others = names_in(config, kNumbers, n);
  return !names.empty() && !others.empty() && names != others;
}

}  // namespace octet
