// The models that GGUF files are read and written of, and what llama.cpp calls their parts.
// Source: llama.cpp's converter, whose names of tensors and order of rows these are.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "nn/parameter_spec.h"
#include "nn/spec.h"

namespace octet {

struct GgufArchitecture {
  std::string_view name;  // general.architecture; its keys begin so
  ModelKind kind;
  // Rows of queries and keys stand in pairs that rotate together: row h d + j d/2 + i of a head of
  // width d in a model folder is row h d + 2 i + j of the file.
  bool has_paired_rows;
  bool has_divisors;  // llama.cpp loads rope_freqs.weight beside its tensors
};

const GgufArchitecture* find_gguf_architecture(std::string_view name);
// Architecture that a kind is written as; mistral (without a window) as llama. Null for others.
const GgufArchitecture* gguf_architecture_of(ModelKind kind);
std::string gguf_architecture_names();

std::string gguf_name(const std::string& parameter);  // "" where it has none
// The width of the heads whose rows are in pairs in the file (io/gguf_rows.h); 0 for other
// parameters.
int64_t paired_width(const GgufArchitecture& architecture, const ModelSpec& spec,
                     const std::string& parameter);

// rope_freqs.weight: llama3's divisors of the frequencies of a head's pairs.
inline constexpr const char* kGgufFrequencies = "rope_freqs.weight";
std::vector<float> llama3_divisors(const ModelSpec& spec);
// Equal up to the rounding of sums in f32.
bool are_equal_divisors(std::span<const float> a, std::span<const float> b);
// Sets rope_scaling to llama3 with the usual factors (low 1, high 4) and the first original length
// from 1024 on, by powers of two, that gives these divisors; of a head so narrow that no pair is
// scaled they are ones, which are no scaling. Else what was expected and came; "" where they are
// set.
std::string set_llama3_scaling(std::span<const float> divisors, ModelSpec& spec);

}  // namespace octet
