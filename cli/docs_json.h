// The tables of the reference pages as JSON: `octet docs PAGE --json`.
#pragma once

#include <string>

namespace octet {

// Arrays of one object each:
//   a key: key, default, accepts, unit, on_resume, meaning
//   an architecture: model_type, class, positions, mlp, keys (key of config.json, field)
//   a quantized type: type, gemm, norm, activation, moment, dequantize: cpu and gpu of each
//   a row of kernels: backend, op, row, speed (empty, generic, reference), types (text, recipes),
//     bytes (an element of the largest tensor), flops (a byte)
//   an op: op, operands, as_values, scale, data; the last two are null where it has no rule
std::string configuration_json();
std::string models_json();
std::string scale_rules_json();
std::string quantized_types_json();
std::string kernels_json();

}  // namespace octet
