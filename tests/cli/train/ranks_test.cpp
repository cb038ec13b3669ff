// Ranks that train together: what agrees with what, and checkpoints that any number of them reads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "cli/program_run.h"
#include "cli/train/tiny_run.h"
#include "io/checkpoint.h"
#include "io/safetensors.h"

namespace octet::train_ranks_test {
namespace {

using test::metrics;
using test::Outcome;
using test::run_program;
using test::ScratchFolder;
using test::tiny_yaml;

class Ranks : public testing::Test {
 protected:
  // Trains a run in folder `out`, which must succeed.
  void train(const std::string& out, const std::string& flags) {
    const Outcome outcome = run_program(folder_, "train --quiet --threads 2 " + config_ +
                                                     " --set out=" + (folder_ / out) + " " + flags);
    ASSERT_EQ(outcome.code, 0) << flags << ": " << outcome.err;
  }
  std::vector<std::string> loss_bits(const std::string& out) {
    return test::loss_bits(folder_ / out);
  }
  std::vector<double> val_losses(const std::string& out) {
    const std::vector<double> losses = test::val_losses(folder_ / out);
    EXPECT_EQ(losses.size(), 3u);
    return losses;
  }
  std::string tensors(const std::string& out, int64_t step) {
    return test::checkpoint_bytes(folder_ / out, step);
  }

  const ScratchFolder folder_;
  const std::string config_ = folder_.put("tiny.yaml", tiny_yaml(folder_));
};

TEST_F(Ranks, with_fp32_have_the_bits_of_one_that_accumulates) {
  train("one", "--set parallel.strict=true --set train.accumulate=6");
  for (const int n : {2, 3}) {
    const std::string out = fmt::format("of{}", n);
    train(out,
          fmt::format("--ranks {} --set parallel.strict=true --set train.accumulate={}", n, 6 / n));
    EXPECT_EQ(loss_bits(out), loss_bits("one")) << n;
    EXPECT_TRUE(tensors(out, 6) == tensors("one", 6)) << n;
    EXPECT_EQ(metrics(folder_ / out).back().at("grad_norm"),
              metrics(folder_ / "one").back().at("grad_norm"));
    EXPECT_EQ(metrics(folder_ / out).back().at("val_loss"),
              metrics(folder_ / "one").back().at("val_loss"));
  }
}

class Stages : public Ranks, public testing::WithParamInterface<const char*> {};

TEST_P(Stages, have_the_same_bits) {
  const std::string recipe = GetParam(), of_coat = " --set optim.master=bf16_sr",
                    of_fp16 = " --set optim.state_v=fp16_sr --set optim.master=fp16_sr";
  const std::string set = " --set recipe=" + recipe +
                          (recipe == "coat"           ? of_coat
                           : recipe == "scalify_fp16" ? of_fp16
                                                      : "");
  // Most shards of two ranks are of one length, none of three.
  for (const auto& [ranks, accumulate] : {std::pair{2, 1}, {2, 2}, {3, 2}}) {
    for (const std::string stage : {"none", "optimizer", "gradients", "parameters"}) {
      train(stage, fmt::format("--overwrite --ranks {} --set train.accumulate={} --set "
                               "parallel.shard={}{}",
                               ranks, accumulate, stage, set));
      const std::string what = fmt::format("{} of {}, accumulating {}", stage, ranks, accumulate);
      EXPECT_EQ(loss_bits(stage), loss_bits("none")) << what;
      EXPECT_TRUE(tensors(stage, 6) == tensors("none", 6)) << what;
      EXPECT_EQ(val_losses(stage), val_losses("none")) << what;
    }
  }
}
INSTANTIATE_TEST_SUITE_P(recipes, Stages,
                         testing::Values("fp32", "bf16", "coat", "coat-fast", "hif8", "scalify_fp8",
                                         "scalify_fp16", "fp8_lm"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

// Rounded to FP16 or E5M2 by each rank, and their sum to FP16: beside one process, which rounds
// once.
TEST_F(Ranks, keep_scaled_gradients_in_every_stage) {
  for (const std::string recipe :
       {"recipe=scalify_fp16 --set recipe.scaled_gradient=fp16",
        "recipe=scalify_fp8 --set recipe.compute=fp16 --set recipe.scaled_gradient=e5m2"}) {
    const std::string set = "--overwrite --set " + recipe + " --set parallel.reduce=f32 ";
    train("one", set + "--set train.accumulate=2");
    const double expected = val_losses("one").back();
    for (const std::string stage : {"none", "optimizer", "gradients", "parameters"}) {
      train(stage, set + "--ranks 2 --set parallel.shard=" + stage);
      EXPECT_EQ(loss_bits(stage), loss_bits("none")) << recipe << ", " << stage;
      EXPECT_TRUE(tensors(stage, 6) == tensors("none", 6)) << recipe << ", " << stage;
      EXPECT_NEAR(val_losses(stage).back(), expected, 0.02) << recipe << ", " << stage;
    }
  }
}

// Whole matrices are dealt out for Muon, lengths summed exactly for LAMB, and states in 8 bits cut
// in whole groups.
TEST_F(Ranks, update_by_any_rule_as_one_does) {
  for (const std::string rule : {"kind=sgd --set optim.lr=0.2", "kind=muon",
                                 "kind=lamb --set optim.lr=0.02 --set optim.state_v=e4m3",
                                 "kind=sgd --set optim.lr=0.2 --set optim.state_m=e4m3",
                                 "kind=muon --set optim.state_m=e4m3+x"}) {
    const std::string set = "--overwrite --set parallel.strict=true --set optim." + rule + " ";
    train("one", set + "--set train.accumulate=6");
    EXPECT_LT(metrics(folder_ / "one").back().at("loss").get<double>(),
              metrics(folder_ / "one").front().at("loss").get<double>() - 0.05)
        << rule;
    for (const std::string stage : {"none", "gradients", "parameters"}) {
      train("ranks", set + "--ranks 3 --set train.accumulate=2 --set parallel.shard=" + stage);
      EXPECT_EQ(loss_bits("ranks"), loss_bits("one")) << rule << ", " << stage;
      EXPECT_TRUE(tensors("ranks", 6) == tensors("one", 6)) << rule << ", " << stage;
    }
    train("ranks", set + "--ranks 3 --set train.accumulate=2 --set train.save_every=3");
    std::filesystem::remove_all(folder_ / "ranks/ckpt/step-000006");
    train("ranks", set.substr(std::string("--overwrite").size()) + "--resume --ranks 2");
    EXPECT_TRUE(tensors("ranks", 6) == tensors("one", 6)) << rule;
    const Outcome other = run_program(folder_, "train --quiet " + config_ + " --resume --set out=" +
                                                   (folder_ / "ranks") + " --set optim.kind=adamw");
    EXPECT_EQ(other.code, 2);
    EXPECT_THAT(other.err, testing::HasSubstr("optim.kind")) << rule;
  }
}

// The first steps overflow.
TEST_F(Ranks, scale_the_loss_as_one_does) {
  for (const std::string kind : {"global", "adaptive"}) {
    const std::string set =
        "--overwrite --set recipe=fp16 --set parallel.reduce=f32 --set "
        "recipe.loss_scale=67108864 --set recipe.loss_scaling=" +
        kind + " --set train.steps=16 ";
    const auto scales = [&](const std::string& out) {
      std::vector<std::string> lines;
      for (const auto& line : metrics(folder_ / out))
        lines.push_back(fmt::format("{} {} {} {}", line.at("loss_scale").dump(),
                                    line.at("loss_window").dump(), line.at("overflowed").dump(),
                                    line.at("loss_good_steps").dump()));
      return lines;
    };
    train("one", set + "--set train.accumulate=6");
    const std::string first = scales("one").front();
    EXPECT_THAT(scales("one"), testing::Contains(testing::Not(first))) << kind;
    EXPECT_THAT(first, testing::HasSubstr(" 1 0"));
    for (const int n : {2, 3}) {
      train("ranks", set + fmt::format("--ranks {} --set train.accumulate={}", n, 6 / n));
      EXPECT_EQ(scales("ranks"), scales("one")) << kind << ", " << n << " ranks";
      EXPECT_NEAR(metrics(folder_ / "ranks").back().at("loss").get<double>(),
                  metrics(folder_ / "one").back().at("loss").get<double>(), 1e-3);
    }
    // The scale and what moves it go from three ranks to two.
    train("ranks", set + "--ranks 3 --set train.accumulate=2 --set train.save_every=5");
    for (const int step : {16, 15, 10})
      std::filesystem::remove_all(folder_ / fmt::format("ranks/ckpt/step-{:06}", step));
    train("ranks", set.substr(std::string("--overwrite").size()) + "--resume --ranks 2");
    EXPECT_EQ(scales("ranks"), scales("one")) << kind;
  }
}

// Scales that are measured each tenth step are those of all ranks' rows in the steps between.
TEST_F(Ranks, agree_on_scales_that_are_measured_at_times) {
  for (const std::string recipe : {"fp8_linear", "coat-static"}) {
    const std::string set =
        "--overwrite --set recipe=" + recipe +
        " --set recipe.scaling=periodic --set train.steps=24 --set parallel.reduce=f32 ";
    train("one", set + "--set train.accumulate=6");
    for (const std::string stage : {"none", "gradients", "parameters"})
      train(stage, set + "--ranks 3 --set train.accumulate=2 --set parallel.shard=" + stage);
    EXPECT_NEAR(metrics(folder_ / "none").back().at("loss").get<double>(),
                metrics(folder_ / "one").back().at("loss").get<double>(), 3e-3)
        << recipe;
    for (const std::string stage : {"gradients", "parameters"}) {
      EXPECT_EQ(loss_bits(stage), loss_bits("none")) << recipe << ", " << stage;
      EXPECT_TRUE(tensors(stage, 24) == tensors("none", 24)) << recipe << ", " << stage;
    }
    // All ranks have the scales that the first one saves.
    for (const int n : {3, 2}) {
      train("saved", set + "--ranks 3 --set train.accumulate=2 --set train.save_every=12");
      std::filesystem::remove_all(folder_ / "saved/ckpt/step-000024");
      train("saved", set.substr(std::string("--overwrite").size()) +
                         fmt::format("--resume --ranks {} --set train.accumulate={}", n, 6 / n));
      if (n == 3) {
        EXPECT_EQ(loss_bits("saved"), loss_bits("none")) << recipe;
      }
      EXPECT_NEAR(metrics(folder_ / "saved").back().at("loss").get<double>(),
                  metrics(folder_ / "one").back().at("loss").get<double>(), 3e-3)
          << recipe;
    }
  }
}

TEST_F(Ranks, go_on_after_a_stop_with_the_same_bits) {
  for (const std::string stage : {"gradients", "parameters"}) {
    const std::string set =
        "--overwrite --ranks 2 --set recipe=coat --set optim.state_m=e4m3+x --set "
        "optim.master=bf16_sr --set parallel.shard=" +
        stage + " ";
    const std::string resume = set.substr(std::string("--overwrite").size()) + "--resume ";
    train("whole", set);
    train("parts", set + "--set train.steps=3 --set optim.warmup=2");
    train("parts", resume + "--set train.steps=6");
    // The learning rate's end is another one where the first part knew of three steps only.
    EXPECT_EQ(metrics(folder_ / "parts").size(), 6u);
    train("saved", set + "--set train.save_every=3");
    std::filesystem::remove_all(folder_ / "saved/ckpt/step-000006");
    train("saved", resume);
    EXPECT_EQ(loss_bits("saved"), loss_bits("whole")) << stage;
    EXPECT_TRUE(tensors("saved", 6) == tensors("whole", 6)) << stage;
  }
}

// Every number of ranks reads what any other wrote, and goes on with the same rows.
TEST_F(Ranks, of_any_number_read_the_checkpoints_of_others) {
  const std::string set = "--set recipe=coat --set train.batch=1 ";
  train("run", set + "--ranks 4 --set train.steps=2 --set train.accumulate=3");
  const std::string first = tensors("run", 2);
  int64_t step = 2;
  for (const int n : {2, 1, 3, 4}) {
    train("run", set + fmt::format("--ranks {} --resume --set train.steps={}", n, ++step));
    const auto lines = metrics(folder_ / "run");
    EXPECT_EQ(lines.back().at("step"), step);
    EXPECT_EQ(lines.back().at("tokens"), step * 12 * 24) << n;
    const auto checkpoint = Checkpoints(posix_files(), folder_ / "run/ckpt").newest();
    EXPECT_EQ(checkpoint->manifest.config.at("parallel.ranks"), std::to_string(n));
    EXPECT_EQ(checkpoint->manifest.config.at("train.accumulate"), std::to_string(12 / n));
  }
  EXPECT_TRUE(tensors("run", 2) == first);
  const Outcome bad = run_program(folder_, "train --quiet " + config_ + " --resume --ranks 5 " +
                                               set + "--set out=" + (folder_ / "run"));
  EXPECT_EQ(bad.code, 2);
  EXPECT_EQ(bad.err,
            "octet: [resume] parallel.ranks: expected a number that divides the 12 rows of a step "
            "into micro-batches of 1 (train.batch), got 5\n");
}

// Scales of FP16 masters and moments are of the whole tensor, whoever has a shard of it.
TEST_F(Ranks, read_halves_with_scales_of_another_number_of_ranks_in_any_stage) {
  const std::string set = "--set recipe=fp8_lm --set train.batch=1 ";
  train("of2", set + "--ranks 2 --set train.steps=3 --set train.accumulate=3");
  for (const std::string stage : {"none", "gradients", "parameters"}) {
    std::filesystem::copy(folder_ / "of2", folder_ / stage,
                          std::filesystem::copy_options::recursive);
    train(stage, set + "--ranks 3 --resume --set train.steps=5 --set parallel.shard=" + stage);
    EXPECT_EQ(loss_bits(stage), loss_bits("none")) << stage;
    EXPECT_TRUE(tensors(stage, 5) == tensors("none", 5)) << stage;
  }
  const auto reader =
      SafetensorsReader::open(posix_files(), folder_ / "none/ckpt/step-000005/optim.safetensors");
  const std::string weight = "model.layers.0.self_attn.q_proj.weight";
  const auto stored = [&](const std::string& name) {
    const StoredTensor* tensor = reader.find(name + weight);
    return tensor == nullptr ? SafeDtype::i8 : tensor->stored;
  };
  EXPECT_EQ(stored("master:"), SafeDtype::f16);
  EXPECT_EQ(stored("adam_v:"), SafeDtype::f16);
  EXPECT_NE(reader.find("fixed_scale:" + weight + ".w"), nullptr);
}

TEST_F(Ranks, lose_little_by_exchanging_gradients_in_e4m3) {
  const std::string set = "--ranks 2 --set recipe=bf16 --set train.steps=30 ";
  const auto last = [&](const std::string& reduce) {
    train(reduce, set + "--set parallel.reduce=" + reduce);
    return metrics(folder_ / reduce).back().at("loss").get<double>();
  };
  const double f32 = last("f32"), bf16 = last("bf16"), e4m3 = last("e4m3");
  EXPECT_NE(e4m3, bf16);
  EXPECT_NEAR(bf16, f32, 0.01);
  EXPECT_NEAR(e4m3, f32, 0.02);
  train("again", set + "--set parallel.reduce=e4m3");
  EXPECT_EQ(loss_bits("again"), loss_bits("e4m3"));
}

TEST_F(Ranks, plan_half_the_bytes_for_gradients_in_e4m3) {
  const auto plan = [&](const std::string& reduce) {
    const Outcome outcome = run_program(
        folder_,
        "plan --json --ranks 4 --set recipe=bf16 --set parallel.reduce=" + reduce + " " + config_);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return nlohmann::json::parse(outcome.out);
  };
  const auto bf16 = plan("bf16"), e4m3 = plan("e4m3");
  const auto sent = [](const nlohmann::json& one) { return one.at("sent_bytes").get<double>(); };
  // A byte less for each element that goes to the other three; vectors travel as they did.
  const double elements = bf16.at("params").get<double>() * 3 / 4;
  EXPECT_GT(sent(bf16) - sent(e4m3), 0.9 * elements);
  EXPECT_LT(sent(bf16) - sent(e4m3), 1.2 * elements);
}

TEST_F(Ranks, exchange_no_codes_where_sums_are_strict) {
  const Outcome outcome = run_program(folder_, "train --quiet --ranks 2 " + config_ +
                                                   " --set parallel.strict=true --set "
                                                   "parallel.reduce=e4m3");
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, testing::HasSubstr("f32 or bf16 with parallel.strict, got e4m3"));
}

TEST_F(Ranks, write_logs_of_their_own_beside_the_first_ones) {
  train("run", "--ranks 3");
  for (const int rank : {1, 2}) {
    EXPECT_THAT(posix_files().read_text(folder_ / fmt::format("run/rank-{:04}.log", rank)),
                testing::HasSubstr("step"));
  }
  EXPECT_FALSE(posix_files().exists(folder_ / "run/rank-0000.log"));
}

TEST_F(Ranks, that_the_device_does_not_offer_are_refused) {
  const Outcome outcome = run_program(folder_, "train --quiet --device cuda --ranks 2 " + config_);
  EXPECT_EQ(outcome.code, 5) << outcome.err;
  EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
  EXPECT_EQ(run_program(folder_, "train --ranks 0 " + config_).code, 2);
}

TEST_F(Ranks, are_planned_without_any) {
  const Outcome outcome =
      run_program(folder_, "plan --json --ranks 4 --set parallel.shard=parameters " + config_);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const auto plan = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(plan.at("ranks"), 4);
  // Each weight is gathered twice and each gradient reduced once, in f32, by three parts of four;
  // vectors are padded to 256 elements a rank.
  const auto params = plan.at("params").get<int64_t>();
  const auto sent = plan.at("sent_bytes").get<int64_t>();
  EXPECT_GT(sent, 3 * params * 4 * 3 / 4 * 8 / 10);
  EXPECT_LT(sent, 3 * params * 4 * 3 / 4 * 2);
  EXPECT_EQ(plan.at("received_bytes"), sent);
  EXPECT_GE(plan.at("hidden_share"), 0.0);
  EXPECT_LE(plan.at("hidden_share"), 1.0);
}

TEST_F(Ranks, are_planned_with_each_transfer_that_is_not_hidden_and_why) {
  const std::string plan = "plan --ranks 2 --set train.accumulate=3 " + config_ + " ";
  const auto json = nlohmann::json::parse(run_program(folder_, plan + "--json").out);
  const std::string text = run_program(folder_, plan).out;
  double waited = 0, last = std::numeric_limits<double>::infinity();
  int64_t most_times = 0;
  for (const auto& one : json.at("waits")) {
    const double seconds = one.at("waited_seconds");
    EXPECT_TRUE(seconds > 0 && seconds <= last) << one;
    EXPECT_NE(one.at("reason"), "");
    waited += last = seconds;
    most_times = std::max(most_times, one.at("times").get<int64_t>());
  }
  EXPECT_NEAR(waited, json.at("waited_seconds").get<double>(), 1e-12);
  EXPECT_GT(most_times, 1);  // the second micro-batch and the third run one function
  const auto& longest = json.at("waits").at(0);
  EXPECT_THAT(text,
              testing::HasSubstr(fmt::format("{}: {}\n", longest.at("what").get<std::string>(),
                                             longest.at("reason").get<std::string>())));
}

TEST_F(Ranks, on_several_hosts_are_planned_with_what_goes_between_them) {
  const auto plan = [&](const std::string& flags) {
    const Outcome outcome =
        run_program(folder_, "plan --json --device cuda --ranks 4 " + flags + " " + config_);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return nlohmann::json::parse(outcome.out);
  };
  const std::string hosts = "--link 100 --hosts 2 --network 10 ";
  const auto one = plan("--link 100"), two = plan(hosts + "--set parallel.transport=nccl");
  EXPECT_EQ(one.at("sent_bytes_between_hosts"), 0);
  EXPECT_EQ(one.at("meetings").get<int>(), 2 * one.at("collective_runs").get<int>());
  EXPECT_EQ(two.at("hosts"), 2);
  // One of three others is of the same host.
  EXPECT_EQ(two.at("sent_bytes"), one.at("sent_bytes"));
  EXPECT_EQ(3 * two.at("sent_bytes_between_hosts").get<int64_t>(),
            2 * two.at("sent_bytes").get<int64_t>());
  EXPECT_NEAR(two.at("seconds_between_hosts").get<double>(),
              two.at("sent_bytes_between_hosts").get<double>() / 10e9, 1e-9);
  EXPECT_GT(two.at("step_seconds"), one.at("step_seconds"));
  EXPECT_FALSE(two.contains("ranks_a_host"));
  EXPECT_EQ(one.at("nccl_bytes"), 0);
  EXPECT_EQ(two.at("nccl_bytes"), 584 << 20);
  const Outcome uneven = run_program(folder_, "plan --device cuda --ranks 4 --hosts 3 " + config_);
  EXPECT_EQ(uneven.code, 2);
  EXPECT_THAT(uneven.err, testing::HasSubstr("--hosts: expected a divisor of 4 ranks, got 3"));
}

// Within hosts first: of f32 half as much between two hosts of two as from every rank to two
// others.
TEST_F(Ranks, on_hosts_of_several_are_planned_in_two_levels) {
  const auto plan = [&](const std::string& flags) {
    const std::string network = flags.find("--hosts") == flags.npos ? "" : "--network 10 ";
    const Outcome outcome =
        run_program(folder_, "plan --json --device cuda --link 100 --set parallel.reduce=f32 " +
                                 network + flags + " " + config_);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return nlohmann::json::parse(outcome.out);
  };
  const auto sent = [](const nlohmann::json& plan) {
    return plan.at("sent_bytes_between_hosts").get<int64_t>();
  };
  const auto flat = plan("--ranks 4 --hosts 2 --set parallel.transport=nccl");
  const auto levels = plan("--ranks 4 --hosts 2");
  EXPECT_EQ(2 * sent(levels), sent(flat));
  EXPECT_EQ(levels.at("ranks_a_host"), 2);
  EXPECT_LT(levels.at("seconds_between_hosts"), flat.at("seconds_between_hosts"));
  // Strict sums are of all ranks in their order; a rank a host has no peers.
  EXPECT_EQ(plan("--ranks 4 --hosts 2 --set parallel.strict=true").contains("ranks_a_host"), false);
  EXPECT_EQ(plan("--ranks 4 --hosts 4").contains("ranks_a_host"), false);
  EXPECT_EQ(plan("--ranks 18 --hosts 2").contains("ranks_a_host"), false);
  EXPECT_EQ(plan("--ranks 16 --hosts 2").at("ranks_a_host"), 8);
  // Ranks of a host need no NCCL if all reach each other's memory.
  EXPECT_EQ(plan("--ranks 8").at("nccl_bytes"), 0);
  EXPECT_EQ(plan("--ranks 16").at("nccl_bytes"), 584 << 20);
}

}  // namespace
}  // namespace octet::train_ranks_test
