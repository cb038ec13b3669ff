// On emulated devices every launch is compared with what its choice says of it
// (KernelChoice::launches): the kernels by name, in order.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "gpu/parity/module_path.h"
#include "plan/catalogue.h"

namespace octet {

// Notes of the emulator (tests/emulator/launches.h).
struct LaunchNotes {
  void (*begin)() = nullptr;
  const char* (*end)() = nullptr;

  static const LaunchNotes& of_module() {
    static const LaunchNotes notes = [] {
      void* const module = dlopen(gpu_module().c_str(), RTLD_NOW | RTLD_NOLOAD);
      return LaunchNotes{
          reinterpret_cast<void (*)()>(dlsym(module, "octet_emulated_note_launches")),
          reinterpret_cast<const char* (*)()>(dlsym(module, "octet_emulated_launches"))};
    }();
    return notes;
  }
};

class WatchedCatalogue : public Catalogue {
 public:
  explicit WatchedCatalogue(std::unique_ptr<Catalogue> own)
      : Catalogue(own->target()), own_(std::move(own)) {}

  std::optional<KernelChoice> choose(const Graph& graph, const Node& node) const override {
    return own_->choose(graph, node);
  }
  LaunchFn prepare(const Graph& graph, const Node& node, const KernelChoice& choice) override {
    return [launch = own_->prepare(graph, node, choice), choice, this](const LaunchArgs& args) {
      // Launches that are made as one are told one by one.
      const bool is_joined = std::exchange(joins_, args.joins_next) || args.joins_next;
      if (is_joined || choice.launches.empty()) return launch(args);
      LaunchNotes::of_module().begin();
      launch(args);
      std::istringstream noted(LaunchNotes::of_module().end());
      std::vector<std::string> names;
      for (std::string name; std::getline(noted, name);) names.push_back(name);
      EXPECT_EQ(names, std::vector<std::string>(choice.launches.begin(), choice.launches.end()))
          << choice.name;
      ++n_compared_;
    };
  }
  bool takes_form(const Graph& graph, const Node& form) const override {
    return own_->takes_form(graph, form);
  }
  void strike(std::string row) override {
    own_->strike(row);
    Catalogue::strike(std::move(row));
  }
  void set_arithmetic(Arithmetic arithmetic) override {
    own_->set_arithmetic(arithmetic);
    target_.arithmetic = own_->target().arithmetic;
  }
  bool init_weight(const WeightInit& what) override { return own_->init_weight(what); }
  AutotuneCache autotune_cache() const override { return own_->autotune_cache(); }
  void use_autotune_cache(std::span<const AutotunedChoice> choices) override {
    own_->use_autotune_cache(choices);
  }
  int64_t n_compared() const { return n_compared_; }

 private:
  std::unique_ptr<Catalogue> own_;
  bool joins_ = false;  // the launch before
  int64_t n_compared_ = 0;
};

}  // namespace octet
