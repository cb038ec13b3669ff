// Note of a checkpoint of adapters on itself, in the metadata of its model.safetensors: which base
// they belong to, and how that was kept while they were trained. Format:
// docs/formats/checkpoint.md.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/files.h"
#include "infer/weights.h"
#include "passes/lora.h"
#include "passes/precision/store_frozen.h"

namespace octet {

inline constexpr const char* kAdapterNote = "octet_lora";  // the metadata's key

struct AdapterNote {
  std::string base;       // a model's folder
  std::string base_hash;  // weights_hash of it
  LoraOptions lora;
  FrozenFormat frozen = FrozenFormat::as_computed;
  Dtype compute = Dtype::bf16;  // of what is not in eight bits
  bool operator==(const AdapterNote&) const = default;
};

std::string adapter_note_text(const AdapterNote& note);
// Throws Error{bad_data} with `where` for what adapter_note_text did not write.
AdapterNote parse_adapter_note(const std::string& text, const std::string& where);

// That of an open file; nothing where it has none.
std::optional<AdapterNote> adapter_note_of(const SafetensorsReader& file);
// That of a .safetensors file; nothing where it has none, or `path` is a folder.
std::optional<AdapterNote> find_adapter_note(const Files& files, const std::string& path);

// The adapters that these options give a model, as lora_adapters(); and all linears that may have
// one.
std::vector<LoraAdapter> adapters_of(const ModelSpec& spec, const LoraOptions& options);
std::vector<LoraAdapter> adaptable_linears(const ModelSpec& spec);

// XXH64 over names and bytes of all parameters but some, as they are stored, 16 digits: the same
// however the weights are cut into files. Reads them once.
std::string weights_hash(const WeightReader& weights, const ModelSpec& spec,
                         const std::vector<std::string>& left_out = {});

}  // namespace octet
