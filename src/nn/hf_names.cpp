#include "nn/hf_names.h"

#include <algorithm>

namespace octet {
namespace {

constexpr std::string_view kBuffers[] = {".attn.bias", ".attn.masked_bias", ".attention.bias",
                                         ".attention.masked_bias", ".rotary_emb.inv_freq"};

bool has_head_parameters(ModelHead head) {
  return head != ModelHead::features && head != ModelHead::embeddings;
}

bool begins_as_head(const ModelDef& def, std::string_view name) {
  return std::ranges::any_of(def.head_prefixes,
                             [&](std::string_view prefix) { return name.starts_with(prefix); });
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
  const bool is_of_head = begins_as_head(def, stored);
  const bool has_head = def.heads.empty() || has_head_parameters(head_of(spec).head);
  if (is_of_head && !has_head) return std::nullopt;
  if (stored.starts_with(prefix) || is_head_name(def, stored)) return stored;
  return std::string(prefix).append(stored);
}

std::optional<std::string> copied_parameter(const ModelSpec& spec, std::string_view file_name) {
  const ModelDef& def = model_def(spec.kind);
  const std::string stored =
      def.renamed != nullptr ? def.renamed(spec, file_name) : std::string(file_name);
  const auto embedding = [&] { return model_parameters(spec).front().name; };
  if (def.translates && stored.ends_with(".embed_tokens.weight") &&
      !parameter_name(spec, file_name))
    return embedding();
  if (def.heads.empty() || head_of(spec).head != ModelHead::masked) return std::nullopt;
  if (stored == def.head) return embedding();
  constexpr std::string_view kDecoder = ".decoder.";
  const size_t at = stored.find(kDecoder);
  if (at == std::string::npos || !begins_as_head(def, stored) || !stored.ends_with(".bias"))
    return std::nullopt;
  return stored.substr(0, at) + stored.substr(at + kDecoder.size() - 1);
}

std::string module_of_class(const ModelSpec& spec, const std::string& module) {
  const ModelDef& def = model_def(spec.kind);
  const ModelHead head = def.heads.empty() ? ModelHead::text : head_of(spec).head;
  const bool stands_alone = head == ModelHead::features || head == ModelHead::embeddings;
  const std::string name = def.module_name != nullptr ? def.module_name(module) : module;
  return stands_alone && name.starts_with(def.prefix) ? name.substr(def.prefix.size()) : name;
}

std::vector<std::string> module_names(const ModelSpec& spec, std::string_view parameter) {
  std::string module(parameter.substr(0, parameter.rfind('.')));
  std::string of_class = module_of_class(spec, module);
  if (of_class == module) return {std::move(module)};
  return {std::move(module), std::move(of_class)};
}

bool is_head_name(const ModelDef& def, std::string_view parameter) {
  return parameter == def.head || begins_as_head(def, parameter);
}

}  // namespace octet
