// The norms.
#include "nn/blocks.h"

namespace octet {

ValueId Blocks::norm_weight(std::string_view path, int64_t n, Init init) {
  return parameter({.name = name(path, "weight"), .shape = {n}, .init = init});
}

ValueId Blocks::rms_norm(ValueId x, std::string_view path) {
  module(path);
  const ValueId w = norm_weight(path, shape(x)[1], Init::ones);
  return builder_.emit(OpCode::rms_norm, NormAttrs{.eps = spec_.norm_eps}, {x, w})[RmsNorm::y];
}

ValueId Blocks::rms_norm_without_weights(ValueId x, std::string_view path) {
  module(path);
  return builder_.emit(OpCode::rms_norm, NormAttrs{.eps = spec_.norm_eps}, {x})[RmsNorm::y];
}

// 1 + weight in single precision under every recipe: eight bits have steps of 1/128 there.
ValueId Blocks::rms_norm_from_one(ValueId x, std::string_view path) {
  module(path);
  const ValueId w = builder_.plus(in_f32(norm_weight(path, shape(x)[1], Init::zeros)), 1);
  return builder_.emit(OpCode::rms_norm, NormAttrs{.eps = spec_.norm_eps}, {x, w})[RmsNorm::y];
}

ValueId Blocks::layer_norm(ValueId x, std::string_view path) {
  module(path);
  const int64_t n = shape(x)[1];
  const ValueId w = norm_weight(path, n, Init::ones);
  const ValueId b = constant(path, "bias", n, Init::zeros);
  return builder_.emit(OpCode::layer_norm, NormAttrs{.eps = spec_.norm_eps},
                       {x, w, b})[LayerNorm::y];
}

ValueId Blocks::layer_norm_from_one(ValueId x, std::string_view path) {
  module(path);
  const int64_t n = shape(x)[1];
  const ValueId w = builder_.plus(in_f32(norm_weight(path, n, Init::zeros)), 1);
  const ValueId b = in_f32(constant(path, "bias", n, Init::zeros));
  return builder_.emit(OpCode::layer_norm, NormAttrs{.eps = spec_.norm_eps},
                       {x, w, b})[LayerNorm::y];
}

ValueId Blocks::layer_norm_without_bias(ValueId x, std::string_view path) {
  module(path);
  const ValueId w = norm_weight(path, shape(x)[1], Init::ones);
  return builder_.emit(OpCode::layer_norm, NormAttrs{.eps = spec_.norm_eps}, {x, w})[LayerNorm::y];
}

ValueId Blocks::layer_norm_without_weights(ValueId x, std::string_view path) {
  module(path);
  return builder_.emit(OpCode::layer_norm, NormAttrs{.eps = spec_.norm_eps}, {x})[LayerNorm::y];
}

}  // namespace octet
