// Ranks that a launcher starts one by one, over TCP: the bits of threads, and one line from each
// when one of them ends.
#include <gmock/gmock.h>

#include <filesystem>

#include "cli/launched/launched_run.h"
#include "io/checkpoint.h"

namespace octet::launched_test {
namespace {

using test::Environment;
using test::free_port;
using test::Launched;
using test::rank_variables;
using testing::HasSubstr;
using testing::StartsWith;

class LaunchedRanks : public test::LaunchedRuns {};

int n_lines(const std::string& text) {
  return static_cast<int>(std::count(text.begin(), text.end(), '\n'));
}

TEST_F(LaunchedRanks, have_the_bits_of_threads) {
  const std::string flags = "--set recipe=coat --set parallel.shard=parameters --threads 1";
  for (const int n : {2, 3}) {
    const std::string threads = fmt::format("threads{}", n), tcp = fmt::format("tcp{}", n);
    train_threads(n, threads, flags);
    for (const auto& rank : start_ranks(n, tcp, flags))
      EXPECT_EQ(rank->code_within(kSeconds), 0) << rank->err();
    expect_same_runs(threads, tcp);
    EXPECT_THAT(posix_files().read_text(folder_ / tcp + "/rank-0001.log"), HasSubstr("step"));
  }
}

TEST_F(LaunchedRanks, of_a_finished_run_write_nothing) {
  for (const auto& rank : start_ranks(2, "run", ""))
    EXPECT_EQ(rank->code_within(kSeconds), 0) << rank->err();
  const auto written = [&] {
    std::map<std::string, std::string> files;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder_ / "run"))
      if (entry.is_regular_file())
        files[entry.path().string()] = posix_files().read_text(entry.path().string());
    return files;
  };
  const auto before = written();
  EXPECT_EQ(before.count(folder_ / "run/rank-0001.log"), 1u);
  for (const auto& rank : start_ranks(2, "run", "--resume"))
    EXPECT_EQ(rank->code_within(kSeconds), 0) << rank->err();
  EXPECT_EQ(written(), before);
}

TEST_F(LaunchedRanks, of_which_there_is_one_are_no_ranks) {
  Environment one = rank_variables(0, 1, free_port());
  one.erase("MASTER_ADDR");
  const auto run = start(one, train_words("one", ""));
  EXPECT_EQ(run->code_within(kSeconds), 0) << run->err();
  EXPECT_EQ(test::metrics(folder_ / "one").size(), 6u);
}

TEST_F(LaunchedRanks, stream_steps_from_the_first_one_alone) {
  const int port = free_port();
  std::vector<std::unique_ptr<Launched>> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    std::vector<std::string> words = {
        "sh", "-c", "exec \"$0\" \"$@\" >" + (folder_ / fmt::format("out{}", rank))};
    for (const std::string& word : train_words("run", "--stream")) words.push_back(word);
    ranks.push_back(start(rank_variables(rank, 2, port), words));
  }
  for (const auto& rank : ranks) EXPECT_EQ(rank->code_within(kSeconds), 0) << rank->err();
  EXPECT_THAT(posix_files().read_text(folder_ / "out0"), StartsWith("{"));
  EXPECT_EQ(posix_files().read_text(folder_ / "out1"), "");
}

struct Gone {
  const char* name;
  int signal;
  const char* why;
};
class GoneRanks : public LaunchedRanks, public testing::WithParamInterface<Gone> {};

// Its checkpoints stay whole, and the run goes on from them.
TEST_P(GoneRanks, are_named_by_each_other_one) {
  const std::string flags = "--set train.steps=200000 --set train.save_every=100 --threads 1";
  for (const size_t gone : {1, 0}) {
    const std::string out = fmt::format("run{}", gone);
    auto ranks = start_ranks(3, out, flags, {{"OCTET_SILENCE_SECONDS", "2"}});
    await_checkpoint(out);
    ranks[gone]->signal(GetParam().signal);
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
      if (rank == gone) continue;
      EXPECT_EQ(ranks[rank]->code_within(30), 75) << rank;
      EXPECT_THAT(ranks[rank]->err(), testing::EndsWith("; `--resume` goes on\n"));
      EXPECT_THAT(ranks[rank]->err(), StartsWith(fmt::format("octet: [ranks] rank {} ended: {}",
                                                             gone, GetParam().why)));
      EXPECT_EQ(n_lines(ranks[rank]->err()), 1) << ranks[rank]->err();
    }
    ranks[gone]->signal(SIGKILL);
    ranks[gone]->code_within(10);
    const auto checkpoint = Checkpoints(posix_files(), folder_ / out + "/ckpt").newest();
    ASSERT_TRUE(checkpoint);
    const auto step = checkpoint->manifest.step;
    for (const auto& rank : start_ranks(
             2, out, fmt::format("--resume --set train.batch=3 --set train.steps={}", step + 1)))
      EXPECT_EQ(rank->code_within(kSeconds), 0) << rank->err();
  }
}
INSTANTIATE_TEST_SUITE_P(ranks, GoneRanks,
                         testing::Values(Gone{"killed", SIGKILL,
                                              "its connection closed without a word"},
                                         Gone{"stopped", SIGSTOP, "no sign of life for 2 s"}),
                         [](const auto& info) { return info.param.name; });

// A run restarted on what is left, as launchers do: one process of a run of two, then two again.
TEST_F(LaunchedRanks, that_are_lost_leave_a_run_that_fewer_end_with_its_global_batch) {
  const std::string flags = "--resume --set train.save_every=2 --set train.steps=";
  auto ranks = start_ranks(2, "run", flags + "200000");
  await_checkpoint("run");
  ranks[1]->signal(SIGKILL);
  EXPECT_EQ(ranks[0]->code_within(30), 75) << ranks[0]->err();
  const auto step = Checkpoints(posix_files(), folder_ / "run/ckpt").newest()->manifest.step;
  for (const auto& alone : start_ranks(1, "run", flags + std::to_string(step + 3)))
    EXPECT_EQ(alone->code_within(kSeconds), 0) << alone->err();
  for (const auto& rank : start_ranks(2, "run", flags + std::to_string(step + 6)))
    EXPECT_EQ(rank->code_within(kSeconds), 0) << rank->err();
  const auto lines = test::metrics(folder_ / "run");
  EXPECT_EQ(lines.back().at("step"), step + 6);
  for (size_t i = 0; i < lines.size(); ++i) {
    EXPECT_EQ(lines[i].at("step"), i + 1);
    EXPECT_EQ(lines[i].at("labels"), lines[0].at("labels")) << i;
  }
}

TEST_F(LaunchedRanks, save_all_when_one_is_asked_to_end) {
  for (const size_t asked : {0, 2}) {
    const std::string out = fmt::format("run{}", asked);
    auto ranks = start_ranks(3, out, "--set train.steps=200000 --threads 1");
    await_steps(out);
    ranks[asked]->signal(SIGTERM);
    for (const auto& rank : ranks) EXPECT_EQ(rank->code_within(30), 143) << rank->err();
    const auto checkpoint = Checkpoints(posix_files(), folder_ / out + "/ckpt").newest();
    ASSERT_TRUE(checkpoint);
    EXPECT_EQ(checkpoint->manifest.step, test::metrics(folder_ / out).back().at("step"));
  }
}

class DifferentRank : public LaunchedRanks {
 protected:
  // Refusal of two ranks, the second one of which is another.
  void expect_refusal(std::vector<std::string> second, const std::string& why, int code = 2) {
    const int port = free_port();
    const auto first = start(rank_variables(0, 2, port), train_words("run", ""));
    const auto other = start(rank_variables(1, 2, port), std::move(second));
    EXPECT_EQ(first->code_within(kSeconds), 5);
    EXPECT_EQ(other->code_within(kSeconds), code);
    EXPECT_THAT(first->err(), StartsWith("octet: [ranks] rank 1 ended: " + why));
    EXPECT_THAT(other->err(), StartsWith("octet: [rank 1] " + why));
    EXPECT_EQ(n_lines(first->err()), 1) << first->err();
    EXPECT_EQ(n_lines(other->err()), 1) << other->err();
  }
};

TEST_F(DifferentRank, of_another_configuration_is_named) {
  expect_refusal(train_words("run", "--set train.batch=4"),
                 "train.batch: expected 2 as rank 0 has it, got 4");
  expect_refusal(train_words("run", "--resume"),
                 "start: expected anew as rank 0 has it, got --resume");
  EXPECT_FALSE(posix_files().exists(folder_ / "run"));
}

TEST_F(DifferentRank, of_another_program_is_named) {
  const std::string copy = folder_ / "octet";
  std::filesystem::copy_file(OCTET_PROGRAM, copy);
  std::ofstream(copy, std::ios::app) << "another build";
  std::vector<std::string> words = train_words("run", "");
  words[0] = copy;
  expect_refusal(words, "program: expected octet ");
}

TEST_F(DifferentRank, of_a_broken_configuration_is_named) {
  expect_refusal(train_words("run", "--set train.batch=none"), "--set: train.batch: expected");
}

TEST_F(DifferentRank, that_sees_another_folder_is_named) {
  // The same words, another place: each rank's working folder is its own.
  const int port = free_port();
  std::vector<std::unique_ptr<Launched>> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    const std::string home = folder_ / fmt::format("host{}", rank);
    std::filesystem::create_directories(home);
    ranks.push_back(start(rank_variables(rank, 2, port), {"env", "-C", home, OCTET_PROGRAM, "train",
                                                          config_, "--quiet", "--set", "out=run"}));
  }
  EXPECT_EQ(ranks[0]->code_within(kSeconds), 5);
  EXPECT_EQ(ranks[1]->code_within(kSeconds), 3);
  const std::string why = "[out] expected the folder 'run' to be the same for all ranks";
  EXPECT_THAT(ranks[0]->err(), StartsWith("octet: [ranks] rank 1 ended: " + why));
  EXPECT_THAT(ranks[1]->err(), StartsWith("octet: [rank 1] " + why));
  EXPECT_FALSE(posix_files().exists(folder_ / "host0/run"));
}

TEST_F(LaunchedRanks, are_no_other_number_than_was_started) {
  for (const std::string flags : {"--ranks 3", "--set parallel.ranks=3"}) {
    const auto ranks = start_ranks(2, "run", flags);
    for (const auto& rank : ranks) {
      EXPECT_NE(rank->code_within(kSeconds), 0);
      EXPECT_THAT(rank->err(), HasSubstr("parallel.ranks: expected 2, as many ranks as torchrun "
                                         "started, or no such key, got 3 ("));
    }
  }
  for (const std::string flags : {"--ranks 2", "--set parallel.ranks=3 --set parallel.ranks=2"}) {
    for (const auto& rank : start_ranks(2, "run", flags + " --overwrite"))
      EXPECT_EQ(rank->code_within(kSeconds), 0) << rank->err();
  }
}

// The other rank never comes.
TEST_F(LaunchedRanks, of_another_number_are_refused_before_they_meet) {
  for (const auto& [flags, source] :
       {std::pair("--ranks 3", "--ranks"), std::pair("--set parallel.ranks=3", "--set")}) {
    const auto run = start(rank_variables(0, 2, free_port()), train_words("run", flags));
    EXPECT_EQ(run->code_within(10), 2);
    EXPECT_EQ(run->err(),
              std::string("octet: parallel.ranks: expected 2, as many ranks as torchrun "
                          "started, or no such key, got 3 (") +
                  source + ")\n");
  }
}

TEST_F(LaunchedRanks, wait_no_longer_than_they_were_told_for_others) {
  Environment variables = rank_variables(0, 2, free_port());
  variables["OCTET_JOIN_SECONDS"] = "1";
  const auto first = start(variables, train_words("run", ""));
  EXPECT_EQ(first->code_within(20), 5);
  EXPECT_THAT(first->err(), testing::MatchesRegex(
                                "octet: \\[ranks\\] expected 2 ranks at 127.0.0.1:[0-9]+ within 1 "
                                "s, without rank 1\n"));
  variables["RANK"] = "1";
  const auto second = start(variables, train_words("run", ""));
  EXPECT_EQ(second->code_within(20), 5);
  EXPECT_THAT(second->err(), HasSubstr("rank 1 found no rank 0 at 127.0.0.1:"));
}

TEST_F(LaunchedRanks, need_a_port_that_is_free) {
  const tcp::Socket other = tcp::listen_at("127.0.0.1", 0);
  const auto first = start(rank_variables(0, 2, tcp::port_of(other)), train_words("run", ""));
  EXPECT_EQ(first->code_within(20), 5);
  EXPECT_THAT(first->err(), HasSubstr("Address already in use (choose another)"));
}

TEST_F(LaunchedRanks, are_examined_by_the_doctor) {
  const int port = free_port();
  const std::string out = folder_ / "doctor.json";
  std::vector<std::unique_ptr<Launched>> ranks;
  for (int rank = 0; rank < 3; ++rank) {
    const std::string to = rank == 0 ? out : "/dev/null";
    ranks.push_back(start(rank_variables(rank, 3, port),
                          {"sh", "-c", "exec \"$0\" doctor --ranks --json >" + to, OCTET_PROGRAM}));
  }
  for (const auto& rank : ranks) EXPECT_EQ(rank->code_within(kSeconds), 0) << rank->err();
  const auto rows = nlohmann::json::parse(posix_files().read_text(out));
  std::map<std::string, std::string> found;
  for (const auto& row : rows) found[row.at("what")] = row.at("detail");
  EXPECT_EQ(found.at("launcher"), "torchrun, 3 ranks");
  EXPECT_EQ(found.at("ranks meet by"), fmt::format("TCP, 127.0.0.1:{}", port));
  EXPECT_THAT(found.at("hosts"), testing::EndsWith(" (ranks 0, 1, 2)"));
  EXPECT_THAT(found.at("all_gather"),
              testing::MatchesRegex("measured: 8 bytes in [0-9]+ us, [0-9.]+ GB/s .*"));
}

TEST_F(LaunchedRanks, that_are_none_are_told_what_would_start_them) {
  for (const char* launcher : {"SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "RANK"}) {
    if (std::getenv(launcher) != nullptr) GTEST_SKIP() << launcher << " is set";
  }
  const auto outcome = test::run_program(folder_, "doctor --ranks --json");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  const auto rows = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(rows.at(0).at("what"), "launcher");
  EXPECT_EQ(rows.at(0).at("there"), "no");
  EXPECT_EQ(rows.at(1).at("what"), "MPI");
}

TEST_F(LaunchedRanks, meet_beside_the_port_that_torchrun_holds) {
  const tcp::Socket held = tcp::listen_at("127.0.0.1", 0);
  std::vector<std::unique_ptr<Launched>> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    Environment variables = rank_variables(rank, 2, tcp::port_of(held));
    variables["TORCHELASTIC_USE_AGENT_STORE"] = "True";
    ranks.push_back(start(variables, train_words("run", "")));
  }
  for (const auto& rank : ranks) EXPECT_EQ(rank->code_within(kSeconds), 0) << rank->err();
}

struct Variables {
  Environment set;
  const char* error;
};
class BadVariables : public LaunchedRanks, public testing::WithParamInterface<Variables> {};

TEST_P(BadVariables, are_named) {
  const auto run = start(GetParam().set, train_words("run", ""));
  EXPECT_EQ(run->code_within(kSeconds), 2);
  EXPECT_EQ(run->err(), std::string("octet: [ranks] ") + GetParam().error + "\n");
}
INSTANTIATE_TEST_SUITE_P(
    launch, BadVariables,
    testing::Values(
        Variables{{{"RANK", "2"}, {"WORLD_SIZE", "2"}},
                  "RANK: expected an integer in [0, 1], got '2'"},
        Variables{{{"WORLD_SIZE", "2"}},
                  "expected RANK and WORLD_SIZE, or neither, got WORLD_SIZE=2 alone"},
        Variables{{{"RANK", "1"}}, "expected RANK and WORLD_SIZE, or neither, got RANK=1 alone"},
        Variables{{{"RANK", "0"}, {"WORLD_SIZE", "two"}},
                  "WORLD_SIZE: expected an integer in [1, 65536], got 'two'"},
        Variables{{{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "node1"}},
                  "started as rank 0 of 2 by torchrun: expected MASTER_ADDR and MASTER_PORT, where "
                  "ranks meet, MASTER_PORT is not set"},
        Variables{{{"SLURM_PROCID", "1"}, {"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_LOCALID", "0"}},
                  "started as rank 1 of 2 by srun: expected MASTER_ADDR and MASTER_PORT, where "
                  "ranks meet, both are not set"},
        Variables{{{"RANK", "0"},
                   {"WORLD_SIZE", "2"},
                   {"MASTER_ADDR", "node1"},
                   {"MASTER_PORT", "70000"}},
                  "MASTER_PORT: expected an integer in [1, 65534], got '70000'"}));

TEST_F(LaunchedRanks, are_told_by_the_variables_of_each_launcher) {
  const std::vector<std::vector<std::string>> names = {
      {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"},
      {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"},
      {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID"}};
  for (const auto& launcher : names) {
    const int port = free_port();
    std::vector<std::unique_ptr<Launched>> ranks;
    for (int rank = 0; rank < 2; ++rank) {
      Environment variables = rank_variables(rank, 2, port);
      variables[launcher[0]] = variables["RANK"];
      variables[launcher[1]] = variables["WORLD_SIZE"];
      variables[launcher[2]] = variables["RANK"];
      variables["RANK"] = variables["WORLD_SIZE"] = "";
      ranks.push_back(start(variables, train_words(launcher[0], "--set train.steps=2")));
    }
    for (const auto& rank : ranks) EXPECT_EQ(rank->code_within(kSeconds), 0) << rank->err();
    EXPECT_EQ(test::metrics(folder_ / launcher[0]).size(), 2u);
  }
}

}  // namespace
}  // namespace octet::launched_test
