// How a run stores Adam's moments, by the names of the configuration (optim.state_m,
// optim.state_v).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "formats/dtype.h"

namespace octet {

struct StateFormat {
  Dtype dtype = Dtype::f32;  // of the first moment; a row's second_moment is v's
  bool expand = false;       // dynamic range expansion; 8-bit formats alone
  bool stochastic = false;   // rounded stochastically when it is stored
  bool operator==(const StateFormat&) const = default;
};

struct StateFormatRow {
  std::string name;
  StateFormat format;
};

// Every format there is: a name is a format, "_sr" where it rounds stochastically, "+x" where it
// expands the range.
std::span<const StateFormatRow> state_formats();

// FP16 with one fixed scale a tensor, rounded stochastically: no format of adamw_step's own, but of
// what is stored around it (optim/optimizer.h).
inline constexpr std::string_view kScaledHalf = "fp16_sr";
constexpr bool is_scaled(const StateFormat& format) {
  return format.dtype == Dtype::fp16;
}

// Every name of a format: those of state_formats(), and of f32 and bf16 with "+x", which changes
// nothing there, since they have nothing to expand.
std::vector<std::string> state_format_names();
// With kScaledHalf: what a run may choose.
std::vector<std::string> run_state_format_names();

// The format with this name.
// Throws Error{invalid_argument} that lists the names for any other one.
StateFormat state_format_from_name(std::string_view name);
StateFormat run_state_format_from_name(std::string_view name);

// False for f32 and bf16 with "+x".
bool expands_as_named(std::string_view name);

// DE8 keeps a sign for m and none for v.
Dtype first_moment_dtype(const StateFormat& format);
Dtype second_moment_dtype(const StateFormat& format);

}  // namespace octet
