// FP8 folders of NVIDIA's ModelOpt: E4M3 weights with one scale each (weight_scale), inputs with a
// fixed one (input_scale), said by quantization_config of config.json (quant_method modelopt) or,
// of older versions, by hf_quant_config.json alone.
#pragma once

#include <optional>
#include <string>

#include "base/files.h"
#include "base/json.h"

namespace octet {

// A config.json whose quantization_config, where that is of quant_method modelopt, is the same of
// quant_method fp8; others as they are. Throws Error{bad_data}, "[config.json] WHERE:
// 'quantization_config.KEY': expected ..., got ...", for another algorithm than FP8 and for a key
// that is not known and does not ask for nothing.
Json modelopt_as_fp8(Json root, const std::string& where);

// The content of a folder's hf_quant_config.json, as quantization_config would say it; nothing
// where there is none.
std::optional<Json> read_modelopt_config(const Files& files, const std::string& folder);
// The text of a folder's config.json, with that in it where it has none of its own.
std::string config_with_modelopt(const Files& files, const std::string& folder);

}  // namespace octet
