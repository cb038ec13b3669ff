// Inference functions of a model on the CPU, bound over arenas that hold its initial weights.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <vector>

#include "backends/cpu/backend.h"
#include "compile/program.h"
#include "runtime/executor.h"
#include "train/weights.h"

namespace octet::test {

class BoundFunctions {
 public:
  BoundFunctions(const ProgramOptions& options, cpu::Backend& backend,
                 const std::vector<FunctionKey>& keys, const std::vector<ParameterSpec>& parameters)
      : program_(options, *backend.catalogue, keys) {
    for (const FunctionKey& f : keys) program_.plan(f.name, f.size);
    int64_t bytes[kArenaCount];
    program_.arena_bytes(bytes);
    arenas_ = std::make_unique<Arenas>(*backend.device, bytes);
    for (const FunctionKey& f : keys)
      bound_[f] =
          std::make_unique<BoundPlan>(program_.plan(f.name, f.size), *backend.catalogue, *arenas_);
    // Bytes that nobody wrote must not be read.
    for (const auto& [name, slot] : program_.layout().slots)
      std::fill_n(arenas_->arena(slot.arena) + slot.offset, slot.type.n_bytes(), std::byte{0xff});
    write_weights(*arenas_, program_.layout(), parameters,
                  [](const ParameterSpec& p) { return initial_values(p, 1); });
  }

  BoundPlan& at(const FunctionKey& key) const { return *bound_.at(key); }

 private:
  Program program_;
  std::unique_ptr<Arenas> arenas_;
  std::map<FunctionKey, std::unique_ptr<BoundPlan>> bound_;
};

}  // namespace octet::test
