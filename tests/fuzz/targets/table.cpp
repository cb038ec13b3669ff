#include <stdexcept>

#include "fuzz/fuzz_targets.h"

namespace octet::fuzz {
namespace {

constexpr TargetRow kTargets[] = {
    {"safetensors", safetensors},
    {"configuration", configuration},
    {"npz", npz},
    {"numpy_header", numpy_header},
    {"token_shard", token_shard},
    {"graph", graph},
    {"manifest", manifest},
    {"model_config", model_config},
    {"tokenizer", tokenizer},
    {"tokenizer_text", tokenizer_text},
    {"chat_template", chat_template},
    {"quantized", quantized},
    {"run_folder", run_folder},
    {"model_folder", model_folder},
};

}  // namespace

std::span<const TargetRow> targets() {
  return kTargets;
}

void expect(bool holds, const char* what) {
  if (!holds) throw std::logic_error(what);
}

}  // namespace octet::fuzz
