// What files hold beside the parameters and a model computes, or has from a parameter.
#pragma once

#include <string>

#include "base/files.h"
#include "nn/model.h"

namespace octet {

// Positions of such a model are computed (nn/marian.cpp). Throws Error{bad_data} where a table in
// the folder's files, NAME.embed_positions.weight, has others: to within what BF16 keeps.
void check_sine_tables(const Files& files, const std::string& folder, const ModelSpec& spec);

// Throws Error{bad_data} where a tensor that repeats a parameter (copied_parameter, nn/hf_names.h)
// has other values: transformers would read both.
void check_copies(const Files& files, const std::string& folder, const ModelSpec& spec);

}  // namespace octet
