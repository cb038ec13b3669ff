#include <algorithm>

#include "nn/hf_config.h"
#include "nn/hf_keys.h"
#include "nn/model.h"

namespace octet {

std::vector<std::string_view> passed_over_keys(const ModelDef& def) {
  std::vector<std::string_view> keys(std::begin(kHarmlessKeys), std::end(kHarmlessKeys));
  keys.emplace_back("pad_token_id");  // which roberta reads
  std::erase_if(keys, [&](std::string_view key) {
    const auto is_read = [&](const HfKey& one) {
      return key == one.key || key == one.newer || key == one.older || key == one.gate;
    };
    return std::ranges::any_of(hf_keys_of(def), is_read) ||
           std::ranges::count(def.hf_neutrals, key, &HfNeutral::key) > 0;
  });
  return keys;
}

}  // namespace octet
