// The keys data.*.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/choices.h"

namespace octet {

// Fine-tuning data: conversations, and by which keys their parts go.
struct ChatConfig : ChatFields {
  std::string chat_template = "none";  // none: the data is text
  bool operator==(const ChatConfig&) const = default;
};

// Pictures (data/images/transforms.h).
struct ImagesConfig {
  int64_t size = 0;      // of the shorter side before the crop; 0: the model's
  bool stretch = false;  // both sides become so long
  ImageFilter filter = ImageFilter::bilinear;
  ImageCrop crop = ImageCrop::center;
  int64_t pad = 0;
  std::vector<double> scale = {0.08, 1}, ratio = {0.75, 4.0 / 3};  // of a random resized crop
  bool flip = false;
  std::vector<double> mean = {0.5}, std_dev = {0.5};
  bool operator==(const ImagesConfig&) const = default;
};

// Hidden tokens (data/masked_rows.h).
struct MaskConfig {
  double share = 0.15;
  bool operator==(const MaskConfig&) const = default;
};

// Text whose spans are left out of a source, and are its target (data/span_rows.h).
struct SpansConfig {
  double share = 0, length = 3;
  bool operator==(const SpansConfig&) const = default;
};

struct DataConfig {
  std::vector<std::string> train;
  std::vector<double> train_weights;  // of each of them; empty: all are 1
  std::vector<std::string> val;
  std::vector<std::string> targets, val_targets;  // of sources, line by line
  std::string source_prefix;
  double val_fraction = 0.05;
  std::string tokenizer = "bytes";
  int64_t token_bytes = 0;  // 0: as the file says
  std::string document_separator;
  DocumentBoundaries document_boundaries = DocumentBoundaries::ignore;
  bool shuffle = true;
  std::optional<WindowOrder> sampling;
  bool pack = false;
  int64_t buckets = 1;
  TooLong too_long = TooLong::split;
  bool text_end = true;
  int64_t stride = 128;  // of questions' windows
  ChatConfig chat;
  TextFields fields;  // of texts with labels
  MaskConfig mask;
  SpansConfig spans;
  ImagesConfig images;
  bool operator==(const DataConfig&) const = default;
};

}  // namespace octet
