// An encoder of text over rows of tokens of any length.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "infer/inference.h"
#include "infer/model_source.h"
#include "text/encode_texts.h"

namespace octet {

struct EncoderCall {
  std::string output;      // of the model, a row of it a token: "features"
  int64_t batch = 32;      // rows at a time
  int64_t max_tokens = 0;  // of a row, at least the longest one's
  OnProgress on_progress = {};
};
// values: [tokens of the row, width]
using VisitRow = std::function<void(size_t row, std::span<const float> values)>;

// A loaded encoder, with a function for a few lengths: 16 and its doubles up to `max_tokens`, of
// one row and of `batch`.
class EncoderModel {
 public:
  EncoderModel(const ModelSource& source, const EncoderCall& call, const TextMachine& machine);
  // Same as run_encoder(); each row is padded to a length that there is.
  void run(std::span<const EncodedTexts> rows, const VisitRow& visit);

 private:
  EncoderCall call_;
  Inference model_;
};

// Shows what the model gives for each row, each once, in an order of its own. Rows of like length
// are computed together, padded to the longest of `batch` and on to a multiple of 8; tokens of
// padding are seen by no other. Deterministic.
void run_encoder(const ModelSource& source, std::span<const EncodedTexts> rows,
                 const EncoderCall& call, const TextMachine& machine, const VisitRow& visit);

}  // namespace octet
