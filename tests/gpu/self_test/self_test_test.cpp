// Self-test of ranks when they connect, by the program itself: two and three ranks, on as many GPUs
// or on one that they share (OCTET_SHARE_GPU), or on emulated ones, whose faults it finds.
#include <gmock/gmock.h>

#include "cli/program_run.h"
#include "gpu/rank_training/rank_run.h"

namespace octet::test::self_test_test {
namespace {

using testing::HasSubstr;

class SelfTest : public testing::Test {
 protected:
  void SetUp() override {
    OCTET_GPU_PROGRAM_OR_SKIP();
    program_ = program_beside_module(folder_);
  }
  // Ends after 120 s, whatever waits for whom.
  Outcome run(const std::string& arguments, const std::string& environment = "") {
    return run_shell(folder_, "env OCTET_SHARE_GPU=1 " + environment + " timeout -k 5 120 " +
                                  program_ + " " + arguments + " --device cuda </dev/null");
  }
  Outcome train(int n_ranks, const std::string& flags, const std::string& environment = "") {
    return run(fmt::format("train {} --overwrite --ranks {} --set out={} {}", small_yaml(folder_),
                           n_ranks, folder_ / "run", flags),
               environment);
  }
  void expect_learned() {
    const auto lines = metrics(folder_ / "run");
    ASSERT_EQ(lines.size(), 4u);
    EXPECT_LT(lines.back().at("loss").get<double>(), lines[0].at("loss").get<double>());
    for (const auto& line : lines) EXPECT_GT(line.at("grad_norm").get<double>(), 0.0);
  }

  const ScratchFolder folder_;
  std::string program_;
};

TEST_F(SelfTest, two_ranks_prove_their_collectives_and_learn) {
  const Outcome outcome = train(2, "--set recipe=coat");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, testing::ContainsRegex("self-test: [0-9]+ kernels right in [0-9]+ ms"));
  expect_learned();
}

TEST_F(SelfTest, three_ranks_prove_their_collectives_and_learn) {
  const Outcome outcome = train(3, "--set parallel.shard=none --set recipe=bf16");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  expect_learned();
}

void expect_links(const Outcome& outcome) {
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_TRUE(outcome.out.ends_with("\nverified\n")) << outcome.out;
  for (const char* row : {"links all_gather", "links reduce_scatter", "links all_reduce max",
                          "links sharded_norm", "links barrier"})
    EXPECT_THAT(outcome.out, HasSubstr(row));
}

TEST_F(SelfTest, links_are_measured_and_verified) {
  expect_links(run("bench links --ranks 2 --rounds 1 --largest 1"));
}

// Ranks whose devices do not reach each other's memory, of one host or of two, train over NCCL.
class Transport : public SelfTest {
 protected:
  void SetUp() override {
    SelfTest::SetUp();
    if (is_emulated()) nccl_ = "OCTET_NCCL=" + gpu_module() + " ";
  }
  // Ranks as torchrun starts them, those of host "a" on the first GPU, of "b" on the second; the
  // first one's outcome.
  Outcome run_on(const std::vector<std::string>& hosts, const std::string& arguments,
                 const std::string& variables, const std::string& of_second = "") {
    const std::string command = command_on_hosts(
        hosts,
        [&](size_t rank) {
          return fmt::format(
              "OCTET_SHARE_GPU=1 CUDA_VISIBLE_DEVICES={} {} {} timeout -k 5 120 {} {} --device "
              "cuda",
              hosts[rank][0] - 'a', variables, rank == 1 ? of_second : "", program_, arguments);
        },
        ">" + (folder_ / "out.txt") + " 2>" + (folder_ / "err.txt"), folder_ / "err-");
    return outcome_of(folder_, std::system(command.c_str()));
  }
  Outcome train_on(const std::vector<std::string>& hosts, const std::string& flags,
                   const std::string& variables, const std::string& of_second = "") {
    return run_on(hosts,
                  fmt::format("train {} --set out={} --set recipe=coat {}", small_yaml(folder_),
                              folder_ / "run", flags),
                  variables, of_second);
  }
  std::string nccl_;
};

TEST_F(Transport, of_gpus_that_do_not_reach_each_other_is_nccl) {
  if (!is_emulated()) GTEST_SKIP() << "these GPUs do";
  const Outcome outcome = train(2, "--set recipe=coat", nccl_ + "OCTET_EMULATED_NO_PEERS=1");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, testing::ContainsRegex("\\[ranks\\] NCCL 2.28.9 .*, [0-9]+ MiB of each "
                                                  "GPU: rank 0: .*peer access"));
  expect_learned();
  const Outcome refused =
      train(2, "--set parallel.transport=peer", nccl_ + "OCTET_EMULATED_NO_PEERS=1");
  EXPECT_EQ(refused.code, 5);
  EXPECT_THAT(refused.err, HasSubstr("[ranks] parallel.transport: expected nccl or auto"));
}

TEST_F(Transport, of_two_hosts_is_nccl) {
  OCTET_DEVICES_OR_SKIP(2);
  const Outcome outcome = train_on({"a", "b"}, "--overwrite", nccl_);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("they are of 2 hosts"));
  expect_learned();
}

// Within the hosts by their ranks' memory, and between them by NCCL; where they have one each, or
// do not have as many, by NCCL alone. A checkpoint says so, and a run that goes on otherwise is
// told.
TEST_F(Transport, of_two_hosts_of_two_is_both) {
  OCTET_DEVICES_OR_SKIP(2);
  const auto machine = [&](int step) {
    const std::string path = folder_ / fmt::format("run/ckpt/step-{:06}/manifest.json", step);
    return nlohmann::json::parse(posix_files().read_text(path)).at("machine");
  };
  const Outcome outcome = train_on({"a", "a", "b", "b"}, "--overwrite", nccl_);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("[ranks] each reads the others' memory within 2 hosts of 2, "
                                     "NCCL "));
  expect_learned();
  EXPECT_EQ(machine(4).at("ranks_a_host"), "2");
  const Outcome resumed = train_on({"a", "b"}, "--resume --set train.steps=5", nccl_);
  ASSERT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_THAT(resumed.err, HasSubstr("sums of 2 ranks a host first, and this process computes on"));
  EXPECT_THAT(resumed.err, HasSubstr("they are of 2 hosts"));
  EXPECT_FALSE(machine(5).contains("ranks_a_host"));
  if (!is_emulated()) return;  // NCCL wants a GPU for each rank that it connects
  const Outcome uneven = train_on({"a", "a", "a", "b"}, "--resume --set train.steps=6", nccl_);
  ASSERT_EQ(uneven.code, 0) << uneven.err;
  EXPECT_THAT(uneven.err, HasSubstr("they are of 2 hosts"));
  EXPECT_FALSE(machine(6).contains("ranks_a_host"));
}

TEST_F(Transport, of_links_is_measured_and_verified) {
  OCTET_DEVICES_OR_SKIP(2);
  const std::string links = "bench links --rounds 1 --largest 1";
  expect_links(run_on({"a", "b"}, links, nccl_));
  expect_links(run_on({"a", "a", "b", "b"}, links, nccl_));
}

TEST_F(Transport, lacks_a_library_or_has_two_versions_in_a_line) {
  if (!is_emulated()) GTEST_SKIP() << "of emulated devices";
  const Outcome missing = train_on({"a", "b"}, "", "OCTET_NCCL=/nowhere/libnccl.so.2");
  EXPECT_EQ(missing.code, 5);
  EXPECT_THAT(missing.err, HasSubstr("[ranks] rank 0: expected NCCL (OCTET_NCCL"));
  const Outcome other = train_on({"a", "b"}, "", nccl_, "OCTET_EMULATED_NCCL_VERSION=22707");
  EXPECT_EQ(other.code, 5);
  EXPECT_THAT(other.err, HasSubstr("[ranks] NCCL: expected one version on all ranks, got 2.28.9 on "
                                   "rank 0 and 2.27.7 on rank 1"));
  const Outcome old =
      train(2, "--set parallel.transport=nccl", nccl_ + "OCTET_EMULATED_NCCL_VERSION=21805");
  EXPECT_EQ(old.code, 5);
  EXPECT_THAT(old.err, HasSubstr("expected version 2.19.0 or later, got 2.18.5"));
}

// In the middle of training, whatever moves the bytes.
TEST_F(Transport, of_a_gpu_that_hangs_names_its_rank) {
  if (!is_emulated()) GTEST_SKIP() << "faults are of emulated devices";
  for (const char* transport : {"peer", "nccl"}) {
    const Outcome outcome =
        train(2,
              fmt::format("--set recipe=bf16 --set train.steps=300 --set parallel.transport={}",
                          transport),
              "env -u OCTET_SHARE_GPU OCTET_STUCK_SECONDS=2 OCTET_EMULATED_WAIT_SECONDS=25 "
              "OCTET_EMULATED_FAULT=hang:streams:device=1:first=620 " +
                  nccl_);
    EXPECT_EQ(outcome.code, 75) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("[ranks] rank 1 ended: its device has not got on, and "
                                       "others wait for it, for 2 s"));
    EXPECT_TRUE(posix_files().exists(folder_ / "run/metrics.jsonl")) << outcome.err;
  }
}

// Before anything is trained or written.
TEST_F(SelfTest, a_wrong_result_of_one_emulated_rank_ends_all_with_a_line) {
  if (!is_emulated()) GTEST_SKIP() << "faults are of emulated devices";
  struct Case {
    const char *fault, *flags, *line;
  };
  for (const Case& c : {Case{"zero:sum_of_ranks:device=1", "--set recipe=coat",
                             "reduce_scatter bf16 -> bf16 with squares, rank 1, element "},
                        Case{"flip:sum_of_ranks:device=0",
                             "--set recipe=coat --set parallel.shard=none", ", rank 0, element "},
                        Case{"flip:max_of_floats:device=1", "--set recipe=coat",
                             "all_reduce max f32, rank 1, element "}}) {
    const Outcome outcome =
        train(2, c.flags, std::string("env -u OCTET_SHARE_GPU OCTET_EMULATED_FAULT=") + c.fault);
    EXPECT_EQ(outcome.code, 5) << c.fault << ": " << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("[ranks] self-test: "));
    EXPECT_THAT(outcome.err, HasSubstr(c.line));
    EXPECT_FALSE(posix_files().exists(folder_ / "run/metrics.jsonl"));
  }
}

TEST_F(SelfTest, a_wrong_sum_of_a_link_ends_the_measurement) {
  if (!is_emulated()) GTEST_SKIP() << "faults are of emulated devices";
  const Outcome outcome =
      run("bench links --ranks 2 --rounds 1 --largest 1",
          "env -u OCTET_SHARE_GPU OCTET_EMULATED_FAULT=zero:sum_of_ranks:device=1:first=300");
  EXPECT_EQ(outcome.code, 5) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("[ranks] self-test: "));
  EXPECT_EQ(outcome.out.find("verified"), std::string::npos);
}

}  // namespace
}  // namespace octet::test::self_test_test
