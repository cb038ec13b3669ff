// Words of config.json that its reader and its writer share.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "nn/spec.h"

namespace octet {

inline constexpr std::string_view kRope = "rope/", kRelu = "relu";
// Keys of the layers with a sliding window, where rotary positions differ by layer.
inline constexpr std::string_view kWindowRope = "rope/sliding_attention/";

// Names that transformers gives the losses of a classifier.
using ProblemType = std::pair<ModelHead, std::string_view>;
inline constexpr ProblemType kProblemTypes[] = {
    {ModelHead::classes, "single_label_classification"},
    {ModelHead::multi_label, "multi_label_classification"},
    {ModelHead::value, "regression"},
};

inline bool is_rope(std::string_view key) {
  return key.starts_with(kRope);
}

inline bool is_window_rope(std::string_view key) {
  return key.starts_with(kWindowRope);
}

inline std::string without_object(std::string_view key) {
  const size_t skipped = is_window_rope(key) ? kWindowRope.size() : is_rope(key) ? kRope.size() : 0;
  return std::string(key.substr(skipped));
}

}  // namespace octet
