// A trainer of a small run in this process, with a way at its weights.
#pragma once

#include <cstring>
#include <string>
#include <vector>

#include "backends/cpu/backend.h"
#include "cli/train/tiny_run.h"
#include "infer/model_spec.h"
#include "train/run_setup.h"
#include "train/trainer.h"
#include "train/weights.h"

namespace octet::test {

struct TinyRun {
  explicit TinyRun(const RunConfig& config)
      : backend(cpu::make_backend(2, cpu::detect_isa())),
        data(open_run_data(posix_files(), config, model_from_config(posix_files(), config))),
        trainer(config, data, {posix_files(), *backend.device, *backend.catalogue}) {}

  // Overwrites one weight's value everywhere.
  void fill(const std::string& parameter, float value) {
    const Layout& layout = trainer.engine().layout();
    const auto n = static_cast<size_t>(layout.slots.at(parameter).type.n_elems());
    write_master(trainer.engine().arenas(), layout, parameter, std::vector<float>(n, value));
  }
  void set_one(const std::string& parameter, size_t index, float value) {
    const Layout& layout = trainer.engine().layout();
    const auto n = static_cast<size_t>(layout.slots.at(parameter).type.n_elems());
    std::vector<float> values(n, 0.01F);
    values.at(index) = value;
    write_master(trainer.engine().arenas(), layout, parameter, values);
  }

  // Values of a parameter or state in f32.
  std::vector<float> values(const std::string& name) {
    const Layout::Slot& slot = trainer.engine().layout().slots.at(name);
    std::vector<float> result(static_cast<size_t>(slot.type.n_elems()));
    std::memcpy(result.data(), trainer.engine().arenas().arena(slot.arena) + slot.offset,
                result.size() * sizeof(float));
    return result;
  }

  cpu::Backend backend;
  Dataset data;
  Trainer trainer;
};

}  // namespace octet::test
