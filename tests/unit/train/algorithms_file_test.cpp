#include "train/algorithms_file.h"

#include <gtest/gtest.h>

#include "unit/base/error_of.h"
#include "unit/base/scratch_folder.h"

namespace octet::train_algorithms_file_test {
namespace {

// Its autotune cache is `own`; keeps what it is to take.
struct MeasuringCatalogue : Catalogue {
  std::optional<KernelChoice> choose(const Graph& /*g*/, const Node& /*n*/) const override {
    return std::nullopt;
  }
  LaunchFn prepare(const Graph&, const Node&, const KernelChoice&) override { return {}; }
  AutotuneCache autotune_cache() const override { return own; }
  void use_autotune_cache(std::span<const AutotunedChoice> choices) override {
    cached.assign(choices.begin(), choices.end());
  }
  AutotuneCache own;
  std::vector<AutotunedChoice> cached;
};

const AutotuneCache kOfRunA = {
    .machine = "GPU A, cuBLASLt 13.1.0, by timing",
    .choices = {{.problem = "16 x 32 x 64 e4m3 x e4m3^T -> bf16",
                 .choice = "algorithm 66, tile 23",
                 .code = "0123",
                 .workspace_bytes = 4096,
                 .ms = 0.125},
                {.problem = "16 x 16 x 16", .choice = "algorithm 1", .code = "ff"}}};

TEST(AlgorithmsFile, a_resumed_run_takes_what_was_written) {
  const test::ScratchFolder folder;
  MeasuringCatalogue first, resumed;
  first.own = kOfRunA;
  resumed.own.machine = kOfRunA.machine;
  write_autotune_cache(posix_files(), folder / "algorithms.json", first);
  EXPECT_EQ(load_autotune_cache(posix_files(), folder / "algorithms.json", resumed), "");
  ASSERT_EQ(resumed.cached.size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(resumed.cached[i].problem, kOfRunA.choices[i].problem);
    EXPECT_EQ(resumed.cached[i].code, kOfRunA.choices[i].code);
    EXPECT_EQ(resumed.cached[i].workspace_bytes, kOfRunA.choices[i].workspace_bytes);
    EXPECT_EQ(resumed.cached[i].ms, kOfRunA.choices[i].ms);
  }
}

TEST(AlgorithmsFile, those_of_another_machine_are_refused_in_words) {
  const test::ScratchFolder folder;
  MeasuringCatalogue first, other;
  first.own = kOfRunA;
  other.own.machine = "GPU B, cuBLASLt 13.2.0, by timing";
  write_autotune_cache(posix_files(), folder / "algorithms.json", first);
  const std::string why = load_autotune_cache(posix_files(), folder / "algorithms.json", other);
  EXPECT_NE(why.find("GPU A"), std::string::npos) << why;
  EXPECT_NE(why.find("GPU B"), std::string::npos) << why;
  EXPECT_TRUE(other.cached.empty());
}

TEST(AlgorithmsFile, is_not_made_where_nothing_was_measured_and_need_not_be_there) {
  const test::ScratchFolder folder;
  MeasuringCatalogue cpu;
  write_autotune_cache(posix_files(), folder / "algorithms.json", cpu);
  EXPECT_FALSE(posix_files().exists(folder / "algorithms.json"));
  cpu.own.machine = "GPU A";
  EXPECT_EQ(load_autotune_cache(posix_files(), folder / "algorithms.json", cpu), "");
}

TEST(AlgorithmsFile, damage_is_an_error_that_names_the_file) {
  const test::ScratchFolder folder;
  MeasuringCatalogue gpu;
  gpu.own.machine = "GPU A";
  for (const char* text : {"", "[]", R"({"format": "other", "machine": "", "algorithms": []})",
                           R"({"format": "octet-algorithms", "machine": "GPU A"})",
                           R"({"format": "octet-algorithms", "machine": "GPU A",
                               "algorithms": [{"problem": 1}]})"}) {
    const std::string path = folder.put("algorithms.json", text);
    const std::string error =
        test::error_of([&] { load_autotune_cache(posix_files(), path, gpu); });
    EXPECT_NE(error.find("algorithms.json"), std::string::npos) << text << ": " << error;
  }
}

}  // namespace
}  // namespace octet::train_algorithms_file_test
