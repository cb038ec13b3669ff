// Tensors of a model's folder beside the parameters, of which other programs read more: an
// encoder's pooler; of a tower what stands behind the hidden state that is read; and of a class
// that is read as another one (nn/model.h, HeadAlias), where config.json still names it, the rest
// of its head. Of a run those of the folder it began with, if it is there.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "base/files.h"
#include "base/json.h"
#include "infer/export.h"
#include "infer/model_source.h"
#include "io/safetensors.h"

namespace octet {

// In `dtype`, or as they are stored.
std::vector<TensorSource> tensors_beside(const Files& files, const ModelSource& source,
                                         const Json& config, std::optional<Dtype> dtype);

// The dtype that they have in an export whose own tensors are of transformers' `word`; nothing: as
// they are stored.
std::optional<Dtype> dtype_beside(const ModelSource& source, ExportDtype dtype,
                                  std::string_view word);

// Says in quantization_config that their modules are not quantized, by their names with and without
// the model's prefix.
void leave_unquantized(Json& quantization, const std::vector<TensorSource>& beside,
                       std::string_view prefix);

}  // namespace octet
