// The shape that makes a ModelSpec a model: zeros filled, and one list of what a shape must hold
// to. Whoever read the shape names the fields in its own words: a run file's keys, a config.json's.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "nn/spec.h"

namespace octet {

// The first thing wrong with a shape. `expected` may hold "{}", which stands for another field and
// its value.
struct ModelFault {
  std::string_view field;  // ModelField::name()
  std::string expected, got;
  std::string_view other = {};
  std::string other_value = {};

  // `expected` with the other field by the name it has where the shape came from.
  std::string expected_of(std::string_view other_name) const;
};

// Tokens of a text at most whose steps a recurrent model's graph has one by one.
inline constexpr int64_t kMaxUnrolledSteps = 64;

std::optional<ModelFault> fault_of(const ModelSpec& spec);

// Fault of `field` beside another one.
ModelFault fault_against(std::string_view field, std::string_view other, std::string expected,
                         const ModelSpec& spec);
// A convolutional network of more blocks than any, or of other stages than widths.
std::optional<ModelFault> fault_of_stages(const ModelSpec& full);
// Its widths where none is given: from `first` on twice as many from stage to stage, up to `most`.
void fill_widths(ModelSpec& full, int64_t first, int64_t most);

// Elements of a head that rotary positions turn: rope_share of its width.
int64_t rotary_width(const ModelSpec& spec);

// True if the queries of a layer see a sliding window of keys alone; of layer -1: none.
bool has_window(const ModelSpec& spec, int64_t layer);
// A 0 for every n-th layer, a 1 for the others; a list no longer than fields' bounds take.
std::vector<int64_t> all_but_every(int64_t n, int64_t layers);
// The n of layers of the gated delta rule: every n-th is of attention.
inline constexpr int64_t kAttentionEvery = 4;

// True if a layer has a state of the tokens before, which does not go back (nn/gated_delta.h).
bool has_state(const ModelSpec& full);

// The row of position 0 in a table of positions: roberta's is the one behind its padding's.
int64_t first_position(const ModelSpec& spec);

// Tokens of the longest row of a model with a table of positions. Of others max_positions.
int64_t longest_row(const ModelSpec& spec);

// Fills what is 0 or empty and follows from other fields; heads must not be 0.
ModelSpec filled(const ModelSpec& spec);

// The decoder of a model that sees pictures as a model of its own, of the kind ModelSpec::text.
ModelSpec text_spec(const ModelSpec& spec);

}  // namespace octet
