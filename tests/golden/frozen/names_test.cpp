// The names and types of what files keep, and what keys random numbers: a run of yesterday goes on
// only where they stay.
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "backends/cpu/backend.h"
#include "base/hash.h"
#include "data/permutation.h"
#include "golden/frozen/runs.h"
#include "golden/golden_text.h"
#include "ir/op_def.h"
#include "train/weights.h"

namespace octet::frozen_names_test {
namespace {

// True of names in layer 0 and outside the layers.
bool is_told(const std::string& name) {
  return name.find(".1.") == std::string::npos;
}

// Tensors that a program keeps; where runs differ in nothing else, their number and hash will do.
std::string tensors_of(const frozen::Run& run, const Catalogue& catalogue, bool in_full) {
  Program program(run.program, catalogue);
  std::string all, told;
  for (const auto& [name, slot] : program.layout().slots) {
    if (slot.arena != Arena::persistent) continue;
    const std::string line =
        fmt::format("  {:9} {} {}\n", enum_name(slot.kind), name, storage_text(slot.type));
    all += line;
    if (in_full && is_told(name)) told += line;
  }
  const uint64_t hash = xxh64(std::as_bytes(std::span(all)));
  return fmt::format("{}: {} lines, hash {:016x}\n", run.name,
                     std::count(all.begin(), all.end(), '\n'), hash) +
         told;
}

TEST(FrozenNames, of_tensors_in_files) {
  const Backend backend = cpu::make_backend(1, cpu::Isa::scalar);
  std::string text = "kind, name and type of what a program keeps; of some without layer 1\n";
  for (const frozen::Run& run : frozen::runs(frozen::Size::tiny)) {
    const bool in_full = run.name.find("bf16 x1") != std::string::npos ||
                         run.name.find("coat-fast x3") != std::string::npos ||
                         run.name.find(" x") == std::string::npos;
    text += tensors_of(run, *backend.catalogue, in_full);
  }
  test::expect_golden("frozen/tensors.txt", text);
}

std::string words(std::span<const float> values) {
  std::string text;
  for (size_t i = 0; i < values.size() && i < 2; ++i) text += fmt::format(" {:a}", values[i]);
  return text;
}

// First values are keyed by a parameter's name and the seed, stochastic rounding by its stream.
std::string random_of(const frozen::Run& run, const Catalogue& catalogue) {
  std::string text = fmt::format("\n{}\n", run.name);
  for (const ParameterSpec& parameter : model_parameters(run.spec))
    if (is_told(parameter.name))
      text += fmt::format("  {}{}\n", parameter.name, words(initial_values(parameter, 5)));
  Program program(run.program, catalogue);
  const Graph& update = program.plan(program.train_functions().back()).graph;
  for (const Node& node : update.nodes) {
    if (node.op != OpCode::adamw_step) continue;
    const auto& a = std::get<AdamwAttrs>(node.attrs);
    const std::string& name = update.input_of(node.in(AdamwStep::w))->name;
    if (!is_told(name)) continue;
    text +=
        fmt::format("  {} stream {:016x} seed {}\n", name, static_cast<uint64_t>(a.stream), a.seed);
  }
  return text;
}

TEST(FrozenNames, of_random_numbers) {
  const Backend backend = cpu::make_backend(1, cpu::Isa::scalar);
  std::string text = "two first values of each parameter, and what keys its rounding\n";
  for (const frozen::Run& run : frozen::runs(frozen::Size::tiny)) {
    const bool is_one = run.name.find("coat x1") != std::string::npos ||
                        run.name.find("stochastic") != std::string::npos;
    if (is_one) text += random_of(run, *backend.catalogue);
  }
  const Permutation order(1000, 3, 2);
  std::vector<int64_t> first;
  for (int64_t i = 0; i < 16; ++i) first.push_back(order(i));
  text += fmt::format("\nwindows of epoch 2 in order: {}\n", fmt::join(first, " "));
  test::expect_golden("frozen/random.txt", text);
}

}  // namespace
}  // namespace octet::frozen_names_test
