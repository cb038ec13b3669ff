// Findings of an audit of GEMMs (gemm_audit.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "ir/attr_enums.h"

namespace octet {

struct AuditDifference {
  std::string linear;  // "layers.3.q_proj"
  GemmRole role = GemmRole::other;
  int64_t m = 0, n = 0, k = 0;
  int64_t row = 0, col = 0;  // of the first output that differs, and its bits
  uint32_t expected = 0, got = 0;
  int64_t n_other = 0, n_outputs = 0;  // of those that were compared
  // True if the same launch on the same operands has the same wrong bits: a unit that is always
  // wrong, or an algorithm; not: a bit that flipped. Nothing where it could not be tried.
  std::optional<bool> repeats = {};
  std::string device;
};
std::string audit_text(const AuditDifference& difference);
// A line of telemetry.jsonl (docs/formats/run.md).
std::string audit_json(int64_t step, const AuditDifference& difference);

}  // namespace octet
