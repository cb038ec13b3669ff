// GEMMs of a step that is computed, made again on the CPU: whether the device's sums have the bits
// that its rule gives them (math/tensor_sums.h). A unit that computes wrongly, or a bit that flips,
// leaves no other trace.
//
// Of each role (forward, dgrad, wgrad) one GEMM of the step is drawn, and of it 16 x 16 outputs. A
// difference is a fault of the device, or an algorithm that adds otherwise: there is no tolerance.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "plan/backend.h"
#include "runtime/executor.h"
#include "train/audit_difference.h"
#include "train/sampled_gemm.h"

namespace octet {

class GemmAudit {
 public:
  // `cpu` has the device's sums (Target::arithmetic). All must outlive it.
  GemmAudit(Arenas& arenas, Device& device, Catalogue& catalogue, const Backend& cpu,
            uint32_t seed);

  // The observer of the step of this number. Refers to this object.
  StepObserver observer(int64_t step);
  std::vector<AuditDifference> take() { return std::move(differences_); }
  int64_t n_outputs() const { return n_outputs_; }  // compared so far

 private:
  struct Eligible {
    size_t step;  // of the plan
    GemmRole role;
    SampledGemm* sample;
  };
  void look(const Plan& plan, const PlanStep& step, bool before);
  void draw(const Plan& plan);
  bool adds_in_y(const Plan& plan, const Node& node);  // its operands are gone then
  const std::vector<Eligible>& eligible(const Plan& plan);
  ReadOperand reader(const Plan& plan, const ValueIds& ids);
  void compare(const Plan& plan, const Node& node, const Eligible& drawn);
  std::optional<bool> repeats(const Plan& plan, const Node& node, const Eligible& drawn,
                              const std::vector<std::byte>& got);
  uint64_t random(uint64_t word) const;

  Arenas& arenas_;
  Device& device_;
  Catalogue& catalogue_;
  const Backend& cpu_;
  uint32_t seed_;
  // By the text of their graph.
  std::map<std::pair<std::string, SampledGemm::Addend>, std::unique_ptr<SampledGemm>> samples_;
  std::map<const Plan*, std::vector<Eligible>> plans_;
  int64_t step_ = 0;
  std::set<GemmRole> done_;           // in this step
  std::map<size_t, Eligible> drawn_;  // of the plan that runs
  SamplePlace place_;
  std::vector<std::byte> expected_;
  std::vector<AuditDifference> differences_;
  int64_t n_outputs_ = 0;
};

}  // namespace octet
