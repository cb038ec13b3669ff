#include "cli/bench_flags.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "cli/enum_option.h"

namespace octet {
namespace {

void add_file_flags(CLI::App& bench, BenchFlags& flags) {
  bench
      .add_option("--ceilings", flags.ceilings,
                  "file that keeps what devices can do: read where it has this one, else measured "
                  "and added; without, of a GPU octet/ceilings.json of the user's cache folder")
      ->type_name("FILE");
  bench.add_option("--loss", flags.loss, "record: the validation loss to reach, nats per token")
      ->check(CLI::Range(1e-6, 1e3))
      ->type_name("LOSS");
  bench.add_option("--every", flags.every, "record: steps between two evaluations")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20))
      ->type_name("N");
  bench.add_option("--csv", flags.csv, "record: a file to add the rows to")->type_name("FILE");
}

}  // namespace

void add_bench_flags(CLI::App& bench, BenchFlags& flags) {
  bench
      .add_option(
          "what", flags.what,
          "layer, scaling (quantizing a layer's inputs by just-in-time, group and delayed "
          "scales), step, decode, prefill, kernels, optimizer, links (between ranks), load, "
          "record (training to a loss); without: step, kernels and optimizer")
      ->check(one_of({"layer", "scaling", "step", "decode", "prefill", "kernels", "optimizer",
                      "links", "load", "record"}))
      ->type_name("WHAT");
  bench
      .add_option("config", flags.config,
                  "YAML file; without: the 25 M Llama, 8 x 256 tokens (record: llama-124m)")
      ->type_name("CONFIG");
  bench
      .add_option(
          "--recipes,--recipe", flags.recipes,
          "recipes to measure, with commas; without: all (kernels: fp32, bf16; record: bf16, coat)")
      ->type_name("NAME,...");
  bench.add_option("--rounds", flags.rounds, "timed steps of each recipe; the median counts")
      ->check(CLI::Range(1, 1000));
  bench.add_option("--params", flags.params, "parameters that the optimizer updates")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 32));
  bench
      .add_option("--documents", flags.documents,
                  "isolated documents in each row, of one length; 0: rows are not divided")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 20))
      ->type_name("N");
  bench
      .add_option("--ranks", flags.ranks,
                  "step, links: of so many ranks that train together (step: bf16,fp8_lm unless "
                  "--recipes says otherwise); links without: 2")
      ->check(CLI::Range(1, 64))
      ->type_name("N");
  bench
      .add_option("--largest", flags.largest,
                  "links: MiB of the largest tensor; without: 64, of GPUs 256")
      ->check(CLI::Range(int64_t{1}, int64_t{1024}))
      ->type_name("MIB");
  add_enum_option(bench, "--over", flags.kind,
                  "what ranks on the CPU are; a launcher's are its own processes");
  bench.add_flag("--by-kernel", flags.by_kernel,
                 "step, decode: also a row for each kernel of one step");
  bench.add_option("--texts", flags.texts, "decode, prefill: texts side by side")
      ->check(CLI::Range(1, 4096))
      ->type_name("N");
  bench.add_option("--context", flags.context, "decode, prefill: tokens of each text in its cache")
      ->check(CLI::Range(1, 1 << 20))
      ->type_name("N");
  add_enum_option(bench, "--weights", flags.weights,
                  "decode, prefill: what the layers' matrices are kept as");
  add_file_flags(bench, flags);
}

void expect_bench_use(const CLI::App& bench, const BenchFlags& flags) {
  const std::string all = "no WHAT";
  const std::string what = flags.what.empty() ? all : flags.what;
  const std::vector<std::pair<const char*, std::vector<std::string>>> uses = {
      {"--ranks", {"step", "links"}},
      {"--over", {"step", "links"}},
      {"--largest", {"links"}},
      {"--by-kernel", {all, "step", "decode"}},
      {"--params", {all, "optimizer"}},
      {"--documents", {all, "layer", "step"}},
      {"--texts", {"decode", "prefill"}},
      {"--context", {"decode", "prefill"}},
      {"--rounds",
       {all, "layer", "scaling", "step", "decode", "prefill", "kernels", "optimizer", "links",
        "load"}},
      {"--loss", {"record"}},
      {"--every", {"record"}},
      {"--csv", {"record"}},
      {"--ceilings",
       {all, "layer", "scaling", "step", "decode", "prefill", "kernels", "optimizer"}},
      {"--weights", {"decode", "prefill"}}};
  for (const auto& [flag, of] : uses) {
    if (bench.count(flag) > 0 && std::ranges::find(of, what) == of.end())
      throw Error(ErrorCode::invalid_argument, "[bench] {}: expected {}, got {}", flag,
                  fmt::join(of, " or "), what);
  }
  const bool is_of_one = flags.what != "links" && flags.ranks == 0;
  const bool has_recipes =
      flags.what != "links" && flags.what != "optimizer" && flags.what != "scaling";
  expect_flags_read(bench, {{"--over", !is_of_one, "--ranks"},
                            {"--by-kernel", is_of_one, "steps of one rank"},
                            {"--ceilings", is_of_one, "steps of one rank"},
                            {"--recipes", has_recipes, "steps, kernels or decoding"}});
  if (flags.what == "links" && flags.ranks == 1)
    throw Error(ErrorCode::invalid_argument, "[bench links] --ranks: expected at least 2, got 1");
}

}  // namespace octet
