// A text model without a cache: each call runs its texts from their beginnings, one after the
// other.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "infer/text_model.h"

namespace octet {

class RecomputedModel : public TextModel {
 public:
  RecomputedModel(const TextModelOptions& options, int64_t vocab);

  void read_source(const Batch& rows) override;
  void fill(std::span<const TextChunk> chunks) override;
  void logits(std::span<const TextChunk> chunks, const Visit& visit) override;
  void copy_prefix(int64_t n_tokens) override;
  void take_over(std::span<const int64_t> from, int64_t n_tokens) override;
  bool has_cache() const override { return false; }

  // Length that texts of so many tokens are padded to: a power of two, but never beyond the
  // capacity. With causal attention what lies behind a position does not matter to it.
  static int64_t padded_length(int64_t n_tokens, int64_t capacity);
  // All such lengths of texts of `least` to `capacity` tokens, by size.
  static std::vector<int64_t> padded_lengths(int64_t least, int64_t capacity);

 protected:
  // Logits behind tokens [first, first + n) of a row of a padded length, f32 [n, vocab].
  virtual std::vector<float> logits_of(const Batch& row, int64_t first, int64_t n) = 0;

 private:
  std::vector<std::vector<int32_t>> texts_;
  std::vector<Batch> sources_;  // a row each
};

}  // namespace octet
