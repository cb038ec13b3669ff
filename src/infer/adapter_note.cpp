#include "infer/adapter_note.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/named_enum.h"
#include "infer/tensor_streams.h"

namespace octet {
std::string adapter_note_text(const AdapterNote& note) {
  Json json = {{"base", note.base},
               {"base_hash", note.base_hash},
               {"rank", note.lora.rank},
               {"alpha", note.lora.alpha},
               {"dropout", note.lora.dropout},
               {"targets", note.lora.targets},
               {"head", note.lora.head},
               {"frozen", enum_name(note.frozen)},
               {"compute", dtype_name(note.compute)}};
  if (note.lora.kind != LoraKind::lora) json["kind"] = enum_name(note.lora.kind);
  if (!note.lora.ranks.empty()) json["ranks"] = note.lora.ranks;
  if (!note.lora.freeze.empty()) json["freeze"] = note.lora.freeze;
  return json.dump();
}

AdapterNote parse_adapter_note(const std::string& text, const std::string& where) {
  const auto fail = [&](const std::string& what) {
    throw Error(ErrorCode::bad_data, "[lora] {}: expected a note of adapters, got {}", where, what);
  };
  AdapterNote note;
  try {
    const Json json = parse_json(text, where);
    note.base = json.at("base").get<std::string>();
    note.base_hash = json.at("base_hash").get<std::string>();
    note.lora.rank = json.at("rank").get<int64_t>();
    note.lora.alpha = json.at("alpha").get<double>();
    note.lora.dropout = json.at("dropout").get<double>();
    note.lora.targets = json.at("targets").get<std::vector<std::string>>();
    if (json.contains("head")) note.lora.head = json.at("head").get<std::vector<std::string>>();
    if (json.contains("ranks")) note.lora.ranks = json.at("ranks").get<std::vector<std::string>>();
    if (json.contains("freeze"))
      note.lora.freeze = json.at("freeze").get<std::vector<std::string>>();
    const auto kind = enum_from_name<LoraKind>(json.value("kind", std::string("lora")));
    if (!kind) fail("a kind that is not known");
    note.lora.kind = *kind;
    const auto frozen = enum_from_name<FrozenFormat>(json.at("frozen").get<std::string>());
    const auto compute = dtype_from_name(json.at("compute").get<std::string>());
    if (!frozen || !compute) fail("a format that is not known");
    note.frozen = *frozen;
    note.compute = *compute;
  } catch (const Json::exception& error) {
    fail(error.what());
  }
  if (note.base.ends_with(".safetensors")) fail("a base that is no folder");  // nor adapters again
  if (!is_high_precision(note.compute) || note.lora.rank < 1 || note.lora.rank > kMaxLoraRank ||
      !std::isfinite(note.lora.alpha)) {
    fail("a rank, an alpha or a type that no run has");
  }
  return note;
}

std::optional<AdapterNote> adapter_note_of(const SafetensorsReader& file) {
  const auto note = file.metadata().find(kAdapterNote);
  if (note == file.metadata().end()) return std::nullopt;
  return parse_adapter_note(note->second, file.path());
}

std::optional<AdapterNote> find_adapter_note(const Files& files, const std::string& path) {
  if (!path.ends_with(".safetensors")) return std::nullopt;
  return adapter_note_of(SafetensorsReader::open(files, path));
}

std::vector<LoraAdapter> adapters_of(const ModelSpec& spec, const LoraOptions& options) {
  const BatchSize size{.batch = 1, .seq = 1};
  return lora_adapters(build_model(spec, size, ModelOutputs::outputs).graph, options);
}

std::vector<LoraAdapter> adaptable_linears(const ModelSpec& spec) {
  return adapters_of(spec, {.rank = 1, .targets = {"*"}});
}

std::string weights_hash(const WeightReader& weights, const ModelSpec& spec,
                         const std::vector<std::string>& left_out) {
  Xxh64 hash;
  for (const ParameterSpec& parameter : model_parameters(spec)) {
    if (std::ranges::find(left_out, parameter.name) != left_out.end()) continue;
    hash.update(as_bytes(parameter.name));
    if (weights.is_folded(parameter.name)) {
      hash.update(weights.read(parameter.name));
      continue;
    }
    const auto read = [&](std::span<std::byte> out, uint64_t first) {
      weights.read_stored(parameter.name, out, first);
    };
    stream_bytes(weights.stored(parameter.name).n_bytes(), read,
                 [&](std::span<const std::byte> bytes) { hash.update(bytes); });
  }
  return fmt::format("{:016x}", hash.digest());
}

}  // namespace octet
