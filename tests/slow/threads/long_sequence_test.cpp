// Twenty steps at a sequence length of 8,192 give the same bits for any number of threads.
#include <gtest/gtest.h>

#include "backends/cpu/backend.h"
#include "cli/train/tiny_run.h"
#include "train/run_setup.h"
#include "train/trainer.h"

namespace octet::threads_long_sequence_test {
namespace {

using test::metrics;
using test::ScratchFolder;

class LongSequence : public testing::TestWithParam<std::string> {};

TEST_P(LongSequence, bits_do_not_depend_on_the_number_of_threads) {
  const ScratchFolder folder;
  const std::string text = folder.put("long.txt", test::easy_text(60000));
  std::vector<nlohmann::json> first;
  for (const int n_threads : {1, 2, 3, 5, 8}) {
    const std::string out = folder / fmt::format("threads-{}", n_threads);
    const RunConfig config = test::tiny_config(
        folder, {"model.seq=8192", "train.batch=1", "train.steps=20", "train.eval_every=0",
                 "data.train=[" + text + "]", "recipe=" + GetParam(), "out=" + out});
    cpu::Backend backend = cpu::make_backend(n_threads, cpu::detect_isa());
    ModelSpec spec;
    spec.vocab = config.model.vocab;
    const Dataset data = open_run_data(posix_files(), config, spec);
    Trainer(config, data, {posix_files(), *backend.device, *backend.catalogue})
        .run(StartMode::fresh, {});
    auto lines = metrics(out);
    for (auto& line : lines) line.erase("mem_bytes");  // scratch is a thread's
    ASSERT_EQ(lines.size(), 20u);
    if (first.empty()) first = lines;
    EXPECT_EQ(lines, first) << n_threads << " threads";
  }
}

INSTANTIATE_TEST_SUITE_P(Recipes, LongSequence, testing::Values("fp32", "bf16", "coat"));

}  // namespace
}  // namespace octet::threads_long_sequence_test
