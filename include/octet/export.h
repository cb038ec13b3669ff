// A model as the Hugging Face ecosystem reads it: what `octet convert` does.
#pragma once

#include <cstdint>
#include <string>

#include "octet/messages.h"

namespace octet {

struct ExportSettings {
  // as-stored (a run's: its compute copy), bf16, f32 (a run's: its masters), fp8-block, fp8-tensor,
  // hif8, which Octet alone reads.
  std::string dtype = "as-stored";
  uint64_t max_shard_bytes = 5'000'000'000;  // of tensors in a file
  MessageSink on_message = {};
};

struct ExportedModel {
  int64_t n_tensors = 0, n_bytes = 0, n_shards = 0;
};

// `from` as octet::Model takes it; `to` must be free or an empty folder. config.json is written
// last: a folder without it is not finished. Needs no machine. Throws Error: invalid_argument where
// `to` is neither or the dtype unknown, bad_data for weights that are not finite and become 8 bits,
// io.
ExportedModel export_to(const std::string& from, const std::string& to,
                        const ExportSettings& settings = {});

}  // namespace octet
