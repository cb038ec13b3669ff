// How the GEMMs of generation add on a GPU. There are three ways, and each function's kernels are
// those of its number of rows (texts times tokens of each):
//   few      one or two rows: a kernel that reads the weights once, and adds in f32
//   fp8      multiples of 16, operands both in FP8: the tensor cores, by their sums of FP8
//   decoded  else: eight bits are decoded to 16, which the library's tensor cores multiply
// Operands in 16 bits are `few` or the library's. A user may ask for one way, so that a text does
// not depend on how many are beside it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/named_enum.h"
#include "infer/inference.h"
#include "infer/text_model.h"

namespace octet {

enum class GenerationSums : uint8_t { by_rows, few, decoded, fp8 };
constexpr auto value_names(GenerationSums) {
  return name_list("auto", "few", "decoded", "fp8");
}

// A model that is to generate.
struct GeneratingModel {
  const ModelSpec& spec;
  const Precision& precision;
};

// GEMMs of one function with one kernel.
struct GenerationGemms {
  FunctionKey function;
  std::string kernel;    // with its operands' types
  std::string_view row;  // of the back end
  int64_t count = 0;
  int64_t n_rows() const { return function.size.batch * function.size.seq; }
};
// Which of the ways a row is; its own name where it is none of them.
std::string_view sums_of_row(std::string_view row);

// GEMMs of the functions over a KV cache, in their order; from plans, without a device.
std::vector<GenerationGemms> generation_gemms(const GeneratingModel& model,
                                              const TextModelOptions& options,
                                              const Catalogue& catalogue);

// Makes what is planned from now on add so: new tokens with `few`, whose prompts no kernel of few
// rows reads; all tokens with the others. fp8 takes texts in multiples of 16, some of which may
// stay idle. Throws Error{invalid_argument} "--sums ..." where the device, the formats or the
// number of texts has no such kernels.
void choose_sums(GenerationSums sums, const GeneratingModel& model, TextModelOptions& options,
                 Catalogue& catalogue);
void choose_sums(GenerationSums sums, const ModelSource& source, TextModelOptions& options,
                 const TextMachine& machine);

}  // namespace octet
