#include "infer/stop_tokens.h"

#include <algorithm>

#include "base/error.h"
#include "base/ordered_json.h"

namespace octet {
namespace {

constexpr const char* kKey = "eos_token_id";

int32_t id_of(const OrderedJson& value, const std::string& path) {
  if (value.is_number_integer()) {
    const auto id = value.get<int64_t>();
    if (id >= 0 && id <= INT32_MAX) return static_cast<int32_t>(id);
  }
  throw Error(ErrorCode::bad_data,
              "[model] {}: {}: expected a token's id or a list of such, got {}", path, kKey,
              value.dump(-1, ' ', false, OrderedJson::error_handler_t::replace));
}

std::vector<int32_t> stored_ids(const Files& files, const std::string& path) {
  if (!files.exists(path)) return {};
  const OrderedJson json = parse_ordered_json(files.read_text(path), path);
  if (!json.is_object()) {
    throw Error(ErrorCode::bad_data, "[model] {}: expected an object, got {}", path,
                json.type_name());
  }
  const auto at = json.find(kKey);
  if (at == json.end() || at->is_null()) return {};
  std::vector<int32_t> ids;
  if (!at->is_array()) return {id_of(*at, path)};
  for (const OrderedJson& id : *at) ids.push_back(id_of(id, path));
  return ids;
}

}  // namespace

std::vector<int32_t> stop_tokens(const Files& files, const std::string& folder,
                                 const Tokenizer& tokenizer) {
  std::vector<int32_t> ids = stored_ids(files, join_path(folder, "generation_config.json"));
  if (ids.empty()) ids = stored_ids(files, join_path(folder, "config.json"));
  for (const auto& id : {tokenizer.eos(), tokenizer.bos()}) {
    if (id) ids.push_back(*id);
  }
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

}  // namespace octet
