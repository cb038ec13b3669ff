// A run, or a model folder, as one GGUF file that llama.cpp and its kin load: metadata, vocabulary,
// chat template, and tensors with llama.cpp's names and order of rows (gguf_architecture.h).
//
//   matrices   the type that is asked for; one whose rows are not whole blocks of 32 is F16 in a
//              Q8_0 file, with a warning, as llama.cpp's converter has it
//   vectors    F32
// Values are those that export_model writes: BF16 of a run its compute copy, others of its masters,
// adapters merged. F16 and BF16 are rounded to nearest even; Q8_0 is gguf_blocks.h's.
#pragma once

#include <cstdint>
#include <string>

#include "base/named_enum.h"
#include "infer/export.h"

namespace octet {

// as_stored: F32 and F16 stay, all others are BF16.
enum class GgufDtype : uint8_t { as_stored, f32, bf16, f16, q8_0 };
constexpr auto value_names(GgufDtype) {
  return name_list("as-stored", "f32", "bf16", "f16", "q8_0");
}

// `path` must be free. Throws Error{invalid_argument} where it is not, where the model is of a kind
// that llama.cpp's names and keys do not say, or its tokenizer of one (gguf_vocabulary_writer.h);
// Error{bad_data} for weights that are not finite in their type.
ExportResult export_gguf(Files& files, const ModelSource& source, const std::string& path,
                         GgufDtype dtype, const Log& log = {});

}  // namespace octet
