// Ranks that train on devices of their own: what has the same bits as what.
#include "gpu/rank_training/rank_run.h"

namespace octet::rank_training_test {
namespace {

using test::metrics;
using test::RankRuns;
using test::with_nccl;

constexpr const char* kStages[] = {"optimizer", "gradients", "parameters", "none"};

struct Setting {
  int n_ranks;
  std::string recipe;
  int accumulate = 1;
};
std::string name_of(const Setting& setting) {
  return fmt::format("{}{}_on_{}", setting.recipe, setting.accumulate > 1 ? "_accumulating" : "",
                     setting.n_ranks);
}
std::string flags_of(const Setting& setting) {
  std::string flags = fmt::format("--ranks {} --set recipe={}{}", setting.n_ranks, setting.recipe,
                                  setting.recipe == "fp32" ? " --set parallel.strict=true" : "");
  if (setting.accumulate > 1)
    flags += fmt::format(" --set train.accumulate={}", setting.accumulate);
  return flags;
}

class RankStages : public RankRuns, public testing::WithParamInterface<Setting> {};

TEST_P(RankStages, learn_with_the_same_bits) {
  OCTET_DEVICES_OR_SKIP(GetParam().n_ranks);
  for (const std::string stage : kStages) {
    train(stage, flags_of(GetParam()) + " --set parallel.shard=" + stage);
    if (HasFatalFailure()) return;
    expect_learns(stage);
    EXPECT_EQ(losses(stage), losses(kStages[0])) << stage;
    EXPECT_EQ(val_losses(stage), val_losses(kStages[0])) << stage;
    EXPECT_TRUE(tensors(stage, "model") == tensors(kStages[0], "model")) << stage;
    // Shards are padded. What a tensor has behind its last 256 elements is updated by another
    // kernel where it is not, whose powers of moments in 8 bits have other last bits.
    if (GetParam().recipe == "coat" && stage == "none") continue;
    EXPECT_TRUE(tensors(stage, "optim") == tensors(kStages[0], "optim")) << stage;
  }
}
INSTANTIATE_TEST_SUITE_P(settings, RankStages,
                         testing::Values(Setting{2, "fp32"}, Setting{2, "coat"},
                                         Setting{2, "coat", 2}, Setting{2, "fp8_lm"},
                                         Setting{3, "fp32"}, Setting{3, "coat"},
                                         Setting{3, "fp8_lm"}),
                         [](const auto& info) { return name_of(info.param); });

class RankTransports : public RankRuns, public testing::WithParamInterface<std::string> {};

TEST_P(RankTransports, have_the_same_bits) {
  OCTET_DEVICES_OR_SKIP(2);
  const std::string flags = flags_of({2, GetParam()});
  train("peer", flags + " --set parallel.transport=peer");
  for (const std::string stage : kStages) {
    train(stage, flags + " --set parallel.transport=nccl --set parallel.shard=" + stage,
          with_nccl());
    if (HasFatalFailure()) return;
    EXPECT_EQ(losses(stage), losses("peer")) << stage;
    EXPECT_TRUE(tensors(stage, "model") == tensors("peer", "model")) << stage;
    if (GetParam() == "coat" && stage == "none") continue;  // as among peers
    EXPECT_TRUE(tensors(stage, "optim") == tensors("peer", "optim")) << stage;
  }
}
INSTANTIATE_TEST_SUITE_P(recipes, RankTransports, testing::Values("fp32", "coat", "fp8_lm"),
                         [](const auto& info) { return info.param; });

// Two hosts of two, whose ranks add up within the hosts first: but for that order, as four of one.
class RankHosts : public RankRuns, public testing::WithParamInterface<std::string> {};

TEST_P(RankHosts, have_the_same_bits_in_all_stages) {
  OCTET_DEVICES_OR_SKIP(4);
  const std::string flags = "--set recipe=" + GetParam();
  train("one_host", flags + " --ranks 4");
  for (const std::string stage : kStages) {
    train_on_hosts({"a", "a", "b", "b"}, stage, flags + " --set parallel.shard=" + stage);
    if (HasFatalFailure()) return;
    expect_learns(stage);
    EXPECT_EQ(losses(stage), losses(kStages[0])) << stage;
    EXPECT_TRUE(tensors(stage, "model") == tensors(kStages[0], "model")) << stage;
    if (GetParam() == "coat" && stage == "none") continue;  // as on one host
    EXPECT_TRUE(tensors(stage, "optim") == tensors(kStages[0], "optim")) << stage;
  }
  const auto got = metrics(folder_ / kStages[0]), want = metrics(folder_ / "one_host");
  EXPECT_EQ(got[0].at("loss"), want[0].at("loss"));
  for (size_t i = 0; i < want.size(); ++i) {
    const double loss = want[i].at("loss").get<double>();
    EXPECT_NEAR(got[i].at("loss").get<double>(), loss, 2e-2 * loss) << i;
  }
}
INSTANTIATE_TEST_SUITE_P(recipes, RankHosts, testing::Values("bf16", "coat", "fp8_lm"),
                         [](const auto& info) { return info.param; });

// With parallel.strict the hosts change no bit.
TEST_P(RankHosts, that_are_strict_have_the_bits_of_one_host) {
  OCTET_DEVICES_OR_SKIP(4);
  const std::string flags = "--set parallel.strict=true --set recipe=" + GetParam();
  train("one_host", flags + " --ranks 4");
  train_on_hosts({"a", "a", "b", "b"}, "two_hosts", flags);
  if (HasFatalFailure()) return;
  EXPECT_EQ(losses("two_hosts"), losses("one_host"));
  EXPECT_TRUE(all_tensors("two_hosts") == all_tensors("one_host"));
}

class StrictRanks : public RankRuns, public testing::WithParamInterface<int> {};

TEST_P(StrictRanks, have_the_bits_of_one_that_accumulates) {
  OCTET_DEVICES_OR_SKIP(GetParam());
  train("one", fmt::format("--set recipe=fp32 --set parallel.strict=true --set train.accumulate={}",
                           GetParam()));
  train("many", flags_of({GetParam(), "fp32"}));
  if (HasFatalFailure()) return;
  EXPECT_EQ(losses("many"), losses("one"));
  EXPECT_TRUE(all_tensors("many") == all_tensors("one"));
  EXPECT_EQ(metrics(folder_ / "many").back().at("grad_norm"),
            metrics(folder_ / "one").back().at("grad_norm"));
}
INSTANTIATE_TEST_SUITE_P(ranks, StrictRanks, testing::Values(2, 3));

class RankCheckpoints : public RankRuns, public testing::WithParamInterface<std::string> {
 protected:
  // The run `from` as it was after a step.
  void copy_run(const std::string& from, int step, const std::string& to) {
    std::filesystem::copy(folder_ / from, folder_ / to, std::filesystem::copy_options::recursive);
    for (int later = step + 1; later <= 4; ++later)
      std::filesystem::remove_all(folder_ / fmt::format("{}/ckpt/step-{:06}", to, later));
  }
  // Gone on with by n ranks, or by those of hosts.
  void go_on(const std::string& from, int step, const std::string& to, int n) {
    copy_run(from, step, to);
    train(to, flags_of({n, GetParam()}) + " --resume --set train.save_every=1");
  }
  void go_on(const std::string& from, int step, const std::string& to,
             const std::vector<std::string>& hosts) {
    copy_run(from, step, to);
    train_on_hosts(hosts, to,
                   flags_of({static_cast<int>(hosts.size()), GetParam()}) +
                       " --resume --set train.save_every=1");
  }
  // "same" went on from "whole" as it had begun and has its bits; so has `again`, which others had
  // gone on with, where sums are strict, and its losses as far as they agree where they are not.
  void expect_gone_on(const std::string& again, const std::vector<int>& steps) {
    EXPECT_EQ(losses("same"), losses("whole"));
    EXPECT_TRUE(all_tensors("same") == all_tensors("whole"));
    const auto whole = metrics(folder_ / "whole"), two = metrics(folder_ / again);
    ASSERT_EQ(two.size(), 4u);
    for (const size_t i : {2, 3})
      EXPECT_NEAR(two[i].at("loss").get<double>(), whole[i].at("loss").get<double>(), 2e-2) << i;
    if (GetParam() != "fp32") return;
    EXPECT_EQ(losses(again), losses("whole"));
    for (const int step : steps)
      EXPECT_TRUE(all_tensors(again, step) == all_tensors("whole", step)) << step;
  }
};

// Two ranks, one, and two again.
TEST_P(RankCheckpoints, are_read_by_one_rank_and_by_two_again) {
  OCTET_DEVICES_OR_SKIP(2);
  train("whole", flags_of({2, GetParam()}) + " --set train.save_every=1");
  go_on("whole", 2, "same", 2);
  go_on("whole", 2, "one", 1);
  go_on("one", 3, "two", 2);
  if (HasFatalFailure()) return;
  expect_gone_on("two", {3, 4});
}

// Two hosts of two, two of one, and two of two again.
TEST_P(RankCheckpoints, of_hosts_of_two_are_read_by_hosts_of_one_and_of_two_again) {
  OCTET_DEVICES_OR_SKIP(4);
  const std::vector<std::string> hosts = {"a", "a", "b", "b"};
  train_on_hosts(hosts, "whole", flags_of({4, GetParam()}) + " --set train.save_every=1");
  go_on("whole", 2, "same", hosts);
  go_on("whole", 2, "one_each", {"a", "b"});
  go_on("one_each", 3, "two_each", hosts);
  if (HasFatalFailure()) return;
  expect_gone_on("two_each", {4});
}
INSTANTIATE_TEST_SUITE_P(recipes, RankCheckpoints, testing::Values("fp32", "coat", "fp8_lm"),
                         [](const auto& info) { return info.param; });

class RanksBesideCpu : public RankRuns, public testing::WithParamInterface<Setting> {};

TEST_P(RanksBesideCpu, have_the_losses_of_the_cpus_ranks) {
  OCTET_DEVICES_OR_SKIP(GetParam().n_ranks);
  // Slow enough that products summed in another order stay close over the steps.
  const std::string flags = flags_of(GetParam()) + " --set optim.lr=1e-3";
  train("gpu", flags);
  ASSERT_EQ(run("cpu", "--device cpu --threads 2 " + flags), 0);
  const auto got = metrics(folder_ / "gpu"), want = metrics(folder_ / "cpu");
  const double tolerance = GetParam().recipe == "fp32" ? 1e-4 : 2e-2;
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    for (const char* key : {"loss", "grad_norm"}) {
      const double expected = want[i].at(key).get<double>();
      EXPECT_NEAR(got[i].at(key).get<double>(), expected,
                  tolerance * expected * (key[0] == 'g' ? 5 : 1))
          << key << " of step " << i;
    }
  }
}
INSTANTIATE_TEST_SUITE_P(recipes, RanksBesideCpu,
                         testing::Values(Setting{2, "fp32"}, Setting{2, "coat"},
                                         Setting{2, "fp8_lm"}),
                         [](const auto& info) { return name_of(info.param); });

class EmulatedRanks : public RankRuns {};

TEST_F(EmulatedRanks, that_come_late_have_the_same_bits) {
  if (!is_emulated()) GTEST_SKIP() << "no emulated device";
  for (const std::string stage : {"gradients", "parameters"}) {
    const std::string flags =
        flags_of({2, "fp8_lm"}) + " --overwrite --set parallel.shard=" + stage;
    train("prompt", flags);
    train("late", flags, "OCTET_EMULATED_JITTER=3:300");
    if (HasFatalFailure()) return;
    EXPECT_EQ(losses("late"), losses("prompt")) << stage;
    EXPECT_EQ(val_losses("late"), val_losses("prompt")) << stage;
    EXPECT_TRUE(all_tensors("late") == all_tensors("prompt")) << stage;
  }
}

// A step has many barriers; these are of the first two steps, behind those of the self-test.
TEST_F(EmulatedRanks, that_do_not_wait_are_found) {
  if (!is_emulated()) GTEST_SKIP() << "no emulated device";
  const std::string flags = flags_of({2, "fp8_lm"});
  train("all", flags);
  for (const int barrier : {78, 80, 84}) {
    const std::string out = fmt::format("without_{}", barrier);
    const int status = run(out, "--device cuda " + flags,
                           fmt::format("OCTET_EMULATED_WAIT_SECONDS=10 "
                                       "OCTET_EMULATED_FAULT=skip:waits:device=0:first={}",
                                       barrier));
    if (status == 0) {
      EXPECT_FALSE(all_tensors(out) == all_tensors("all")) << barrier;
      continue;
    }
    // Ranks disagree on the step, or a flag was overwritten that another wait was for.
    const std::string err = posix_files().read_text(folder_ / "err.txt");
    EXPECT_TRUE(err.find("on every rank, got others") != std::string::npos ||
                err.find("waited in vain") != std::string::npos)
        << err;
  }
}

}  // namespace
}  // namespace octet::rank_training_test
