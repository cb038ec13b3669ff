#include "nn/hf_names.h"

#include <algorithm>

namespace octet {
namespace {

constexpr std::string_view kBuffers[] = {".attn.bias", ".attn.masked_bias", ".attention.bias",
                                         ".attention.masked_bias", ".rotary_emb.inv_freq"};

bool has_head_parameters(ModelHead head) {
  return head != ModelHead::features && head != ModelHead::embeddings;
}

}  // namespace

std::optional<std::string> parameter_name(const ModelSpec& spec, std::string_view file_name) {
  const ModelDef& def = model_def(spec.kind);
  const std::string stored =
      def.renamed != nullptr ? def.renamed(spec, file_name) : std::string(file_name);
  const bool is_buffer = std::any_of(std::begin(kBuffers), std::end(kBuffers),
                                     [&](auto suffix) { return stored.ends_with(suffix); });
  if (is_buffer || (spec.tied && stored == def.head)) return std::nullopt;
  if (def.skips != nullptr && def.skips(spec, stored)) return std::nullopt;
  const std::string_view prefix = def.prefix;
  const auto begins = [&](std::string_view own) { return stored.starts_with(own); };
  const bool is_of_head = std::ranges::any_of(def.head_prefixes, begins);
  const bool has_head = def.heads.empty() || has_head_parameters(head_of(spec).head);
  if (is_of_head && !has_head) return std::nullopt;
  if (stored == def.head || begins(prefix) || is_of_head) return stored;
  return std::string(prefix).append(stored);
}

}  // namespace octet
