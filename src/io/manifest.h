// A checkpoint's manifest.json: all that a run needs to go on besides the tensors. Format:
// docs/formats/checkpoint.md.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace octet {

using KeyValues = std::map<std::string, std::string>;

struct Manifest {
  static constexpr int64_t kMajor = 1, kMinor = 0;  // of the writer

  int64_t major = kMajor, minor = kMinor;
  int64_t step = 0;       // the step whose result this is; the directory's number
  int64_t attempted = 0;  // steps tried, skipped ones included: keys the random numbers
  int64_t skipped = 0;    // steps that a non-finite gradient made void
  int64_t tokens = 0;     // seen in training
  uint64_t seed = 0;
  std::string recipe;
  KeyValues loader = {};  // data/loader.h's state
  KeyValues extra = {};   // of the trainer: loss scale, configuration hash, ...
  KeyValues model_tensors = {},
            optim_tensors = {};  // name -> dtype ("hif8" where the file says U8)
};

// Keys are sorted and no time or host is stored: equal runs have equal bytes.
std::string manifest_to_json(const Manifest& manifest);

// Unknown keys are accepted (a later minor version may have written them); another major version is
// Error{bad_data}.
Manifest parse_manifest(const std::string& text, const std::string& where);

}  // namespace octet
