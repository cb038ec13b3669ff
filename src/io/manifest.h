// A checkpoint's manifest.json: all that a run needs to go on besides the tensors. Format:
// docs/formats/checkpoint.md.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace octet {

using KeyValues = std::map<std::string, std::string>;

// A tensor's part in the run, apart from its name: "moment1" of parameter "lm_head.weight".
// docs/formats/checkpoint.md lists the uses.
struct TensorUse {
  std::string use;
  std::string owner;  // a parameter, or a quantizer's site
  bool operator==(const TensorUse&) const = default;
};
using TensorUses = std::map<std::string, TensorUse>;  // by tensor name

struct Manifest {
  static constexpr int64_t kMajor = 1, kMinor = 1;  // of the writer

  int64_t major = kMajor, minor = kMinor;
  int64_t step = 0;       // the step whose result this is; the directory's number
  int64_t attempted = 0;  // steps tried, skipped ones included: keys the random numbers
  int64_t skipped = 0;    // steps that a non-finite gradient made void
  int64_t tokens = 0;     // seen in training
  uint64_t seed = 0;
  std::string recipe;
  KeyValues loader = {};  // RowLoader::state()
  KeyValues extra = {};   // of the trainer
  // From version 1.1 on; empty before.
  KeyValues config = {};   // keys that decide what is computed -> values, resolved
  KeyValues machine = {};  // what computed: "device", "isa", "ranks_a_host" (CollectiveAttrs)
  TensorUses uses = {};    // of the tensors of both files
  KeyValues model_tensors = {},
            optim_tensors = {};  // name -> dtype ("hif8" where the file says U8)
};

std::string config_hash(const KeyValues& config);  // XXH64 of "key: value\n" in order, 16 digits

// Keys are sorted and no time, host or path is stored: equal runs have equal bytes.
std::string manifest_to_json(const Manifest& manifest);

// Unknown keys are accepted (a later minor version may have written them). Error{bad_data}: another
// major version, a configuration that is not the one of "config_hash", more skipped steps than
// attempted ones.
Manifest parse_manifest(const std::string& text, const std::string& where);

}  // namespace octet
