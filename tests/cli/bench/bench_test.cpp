// octet bench, and octet train --profile-steps, as a user calls them on a tiny model.
#include <gtest/gtest.h>

#include <array>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "base/error.h"
#include "base/files.h"
#include "bench/ceilings_file.h"
#include "cli/program_run.h"
#include "cli/train/tiny_run.h"

namespace octet::test::bench_test {
namespace {

using nlohmann::json;

json bench_rows(const ScratchFolder& folder, const std::string& arguments) {
  const std::string config = folder.put("tiny.yaml", tiny_yaml(folder));
  const Outcome outcome =
      run_program(folder, "bench " + arguments + " --rounds 1 --json --threads 2 " +
                              (arguments.starts_with("optimizer") ? "--params 5000" : config));
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  return json::parse(outcome.out);
}

const json& row_named(const json& rows, const std::string& name) {
  for (const json& row : rows) {
    if (row.at("name") == name) return row;
  }
  throw std::runtime_error("no row " + name);
}

void expect_all_keys(const json& rows) {
  const std::set<std::string> expected = {"name",  "shape", "value", "unit", "baseline",
                                          "ratio", "floor", "share", "isa",  "threads"};
  for (const json& row : rows) {
    std::set<std::string> keys;
    for (const auto& [key, value] : row.items()) keys.insert(key);
    EXPECT_EQ(keys, expected);
    for (const char* key : {"value", "ratio", "floor", "share", "threads"})
      EXPECT_TRUE(row.at(key).is_number()) << row;
    EXPECT_TRUE(row.at("name").is_string() && row.at("isa").is_string()) << row;
  }
}

TEST(Bench, scaling_times_three_sources_of_each_operands_scale) {
  const ScratchFolder folder;
  const json rows = bench_rows(folder, "scaling");
  expect_all_keys(rows);
  for (const std::string of :
       {"attention input", "attention output", "mlp input", "mlp product", "layer"}) {
    for (const std::string source : {"just-in-time", "group", "delayed"}) {
      const json& row = row_named(rows, "scaling " + of + " " + source);
      EXPECT_EQ(row.at("unit"), "ms");
      EXPECT_EQ(row.at("baseline"), "just-in-time");
      EXPECT_GT(row.at("value"), 0);
      EXPECT_GT(row.at("floor"), 0);
    }
  }
}

TEST(Bench, steps_have_speed_work_time_and_reference_rows_against_bf16) {
  const ScratchFolder folder;
  const json rows = bench_rows(folder, "step --recipes bf16,fp32 --by-kernel");
  expect_all_keys(rows);
  for (const std::string recipe : {"bf16", "fp32"}) {
    const json& speed = row_named(rows, "step " + recipe);
    EXPECT_EQ(speed.at("unit"), "tokens/s");
    EXPECT_EQ(speed.at("baseline"), "bf16");
    EXPECT_GT(speed.at("ratio"), 0);
    EXPECT_EQ(speed.at("threads"), 2);
    const json& time = row_named(rows, "step " + recipe + " time");
    EXPECT_GT(time.at("floor"), 0);
    // 2 x 24 tokens a step
    EXPECT_NEAR(speed.at("value").get<double>() * time.at("value").get<double>() / 1000, 48, 0.1);
    EXPECT_GT(row_named(rows, "step " + recipe + " work").at("value"), 0);
    const double reference = row_named(rows, "step " + recipe + " reference").at("value");
    EXPECT_TRUE(reference >= 0 && reference <= 100) << reference;
    EXPECT_GT(row_named(rows, "step " + recipe + ": (between kernels)").at("value"), 0);
  }
  EXPECT_EQ(row_named(rows, "step bf16").at("ratio"), 1);
}

TEST(Bench, steps_of_divided_rows_run_attention_with_documents) {
  const ScratchFolder folder;
  const auto forward = [](const json& rows) {
    for (const json& row : rows) {
      const std::string name = row.at("name");
      if (name.starts_with("step fp32: attention f32")) return name;
    }
    return std::string();
  };
  const std::string arguments = "step --by-kernel --recipes fp32 --documents ";
  const std::string whole = forward(bench_rows(folder, arguments + "0"));
  EXPECT_EQ(whole.find("i32"), std::string::npos);
  EXPECT_NE(forward(bench_rows(folder, arguments + "3")).find("f32 x f32 x f32 x i32"),
            std::string::npos);
}

TEST(Bench, layers_have_times_and_kept_bytes) {
  const ScratchFolder folder;
  const json rows = bench_rows(folder, "layer --recipes fp32");
  expect_all_keys(rows);
  const double forward = row_named(rows, "layer fp32 forward").at("value");
  const double backward = row_named(rows, "layer fp32 backward").at("value");
  EXPECT_GT(forward, 0);
  EXPECT_NEAR(row_named(rows, "layer fp32").at("value"), forward + backward,
              0.01 * (forward + backward));
  const json& kept = row_named(rows, "layer fp32 kept");
  EXPECT_GT(kept.at("value"), 0);
  EXPECT_GT(kept.at("ratio"), 0.4);  // twice as wide as bf16's but for the statistics
  EXPECT_LT(kept.at("ratio"), 0.7);
}

TEST(Bench, kernels_of_the_model_have_floors) {
  const ScratchFolder folder;
  const json rows = bench_rows(folder, "kernels --recipes fp32");
  expect_all_keys(rows);
  EXPECT_GT(row_named(rows, "memory").at("value"), 0);
  EXPECT_GT(row_named(rows, "gemm bf16").at("ratio"), 0);
  EXPECT_GT(row_named(rows, "encode e4m3").at("value"), 0);
  const json& norm = row_named(rows, "rms_norm f32 x f32 -> f32, f32: simd");
  EXPECT_EQ(norm.at("shape"), "[48,32] x [32] -> [48,32], [48]");
  EXPECT_GT(norm.at("floor"), 0);
}

TEST(Bench, kernels_that_read_scales_of_powers_of_two_are_measured_too) {
  const ScratchFolder folder;
  expect_all_keys(bench_rows(folder, "kernels --recipes mxfp8"));
}

TEST(Bench, optimizer_rows_are_against_f32_states) {
  const ScratchFolder folder;
  const json rows = bench_rows(folder, "optimizer");
  expect_all_keys(rows);
  const json& f32 = row_named(rows, "adamw f32 moments, fp32 weights");
  EXPECT_EQ(f32.at("shape"), "5000 parameters, 28 bytes each");
  EXPECT_EQ(f32.at("ratio"), 1);
  EXPECT_GT(row_named(rows, "adamw f32 moments, bf16_remainder weights").at("ratio"), 0);
}

TEST(Bench, steps_of_ranks_have_a_row_for_each_rank_and_its_transfers) {
  const ScratchFolder folder;
  for (const std::string over : {"threads", "processes"}) {
    const json rows = bench_rows(folder, "step --ranks 2 --recipes fp8_lm --over " + over);
    expect_all_keys(rows);
    ASSERT_EQ(rows.size(), 8u);
    EXPECT_EQ(row_named(rows, "step fp8_lm").at("unit"), "tokens/s");
    EXPECT_LT(row_named(rows, "step fp8_lm loss").at("value"),
              row_named(rows, "step fp8_lm first loss").at("value"));
    EXPECT_GT(row_named(rows, "step fp8_lm |g|").at("value"), 0);
    double slowest = 0;
    for (const std::string rank : {"0", "1"}) {
      const double ms = row_named(rows, "step fp8_lm rank " + rank).at("value").get<double>();
      slowest = std::max(slowest, ms);
      EXPECT_GT(row_named(rows, "step fp8_lm rank " + rank + " transfers").at("value"), 0);
    }
    // 2 rows of 24 tokens each.
    EXPECT_NEAR(row_named(rows, "step fp8_lm").at("value").get<double>(), 96 / (slowest / 1000),
                96 / (slowest / 1000) * 0.01);
  }
}

TEST(Bench, steps_of_ranks_that_do_not_learn_are_refused) {
  const ScratchFolder folder;
  const std::string config = folder.put("tiny.yaml", tiny_yaml(folder));
  const Outcome outcome = run_program(folder,
                                      "bench step --ranks 2 --recipes bf16 --rounds 1 --threads 2 "
                                      "--set optim.lr=1e-30 " +
                                          config);
  EXPECT_EQ(outcome.code, 4) << outcome.err;
  EXPECT_NE(outcome.err.find("[bench step] bf16: expected a loss below "), std::string::npos)
      << outcome.err;
  EXPECT_EQ(outcome.out, "");
}

TEST(Bench, a_decoded_token_is_measured_against_reading_weights_and_cache) {
  const ScratchFolder folder;
  for (const std::string weights : {"", ", weights e4m3"}) {
    const std::string flag = weights.empty() ? "" : " --weights e4m3";
    const json rows =
        bench_rows(folder, "decode --recipes bf16 --texts 3 --context 20 --by-kernel" + flag);
    expect_all_keys(rows);
    const double ms = row_named(rows, "decode bf16" + weights + " time").at("value");
    EXPECT_GT(row_named(rows, "decode bf16" + weights + " time").at("floor"), 0);
    const double speed = row_named(rows, "decode bf16" + weights).at("value");
    EXPECT_NEAR(speed, 3000 / ms, 3000 / ms * 0.01);
    EXPECT_GT(
        row_named(rows, "decode bf16" + weights + ": add bf16 x bf16 -> bf16: simd").at("value"),
        0);
  }
}

TEST(Bench, links_are_measured_by_size_between_threads_and_processes) {
  const ScratchFolder folder;
  for (const std::string over : {"threads", "processes"}) {
    const json rows = bench_rows(folder, "links --ranks 3 --largest 1 --over " + over);
    expect_all_keys(rows);
    ASSERT_EQ(rows.size(), 9u);
    EXPECT_EQ(rows.front().at("name"), "links all_gather");
    EXPECT_EQ(rows.front().at("shape"), "3 " + over + ", 64 KiB");
    EXPECT_EQ(rows.back().at("name"), "links all_reduce");
    EXPECT_EQ(rows.back().at("shape"), "3 " + over + ", 1024 KiB");
    for (const json& row : rows) {
      EXPECT_GT(row.at("value"), 0) << row;
      EXPECT_EQ(row.at("unit"), "GB/s to each rank");
    }
  }
  const Outcome table = run_program(folder, "bench links --rounds 1 --threads 2");
  EXPECT_EQ(table.code, 0) << table.err;
  EXPECT_TRUE(table.out.ends_with("\nverified\n")) << table.out;
  EXPECT_NE(table.out.find(", 65536 KiB"), std::string::npos) << table.out;
  EXPECT_EQ(run_program(folder, "bench optimizer --ranks 2").code, 2);
}

TEST(Bench, unknown_recipe_is_a_usage_error) {
  const ScratchFolder folder;
  const Outcome outcome = run_program(folder, "bench step --recipes bf17");
  EXPECT_EQ(outcome.code, 2);
  EXPECT_NE(outcome.err.find("bf17"), std::string::npos) << outcome.err;
  EXPECT_EQ(outcome.out, "");
}

TEST(ProfileSteps, write_a_trace_of_just_these_steps_and_print_a_table) {
  const ScratchFolder folder;
  const std::string config = folder.put("tiny.yaml", tiny_yaml(folder));
  for (const std::string accumulate : {"1", "2"}) {
    const std::string out = folder / ("run" + accumulate);
    const Outcome outcome =
        run_program(folder, "train " + config + " --profile-steps 2:4 --set out=" + out +
                                " --set train.accumulate=" + accumulate);
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    for (const char* word : {"kernel", "adamw_step", "(between kernels)", "total"})
      EXPECT_NE(outcome.out.find(word), std::string::npos) << outcome.out;
    const json trace = json::parse(posix_files().read_text(out + "/trace.json"));
    std::multiset<int> steps;
    for (const json& event : trace.at("traceEvents")) {
      if (event.value("cat", "") == "function") steps.insert(event["args"]["step"].get<int>());
    }
    for (const int step : {2, 3, 4})
      EXPECT_EQ(steps.count(step), accumulate == "1" ? 1u : 3u) << step;
    EXPECT_EQ(steps.size(), accumulate == "1" ? 3u : 9u);
  }
}

TEST(ProfileSteps, do_not_change_the_run) {
  const ScratchFolder folder;
  const std::string config = folder.put("tiny.yaml", tiny_yaml(folder));
  const std::string plain = folder / "plain", watched = folder / "watched";
  ASSERT_EQ(run_program(folder, "train " + config + " --set out=" + plain).code, 0);
  ASSERT_EQ(
      run_program(folder, "train " + config + " --profile-steps 1:3 --set out=" + watched).code, 0);
  EXPECT_EQ(metrics(plain), metrics(watched));
  EXPECT_FALSE(posix_files().exists(plain + "/trace.json"));
}

TEST(ProfileSteps, refuse_what_is_no_range_before_anything_is_written) {
  const ScratchFolder folder;
  const std::string config = folder.put("tiny.yaml", tiny_yaml(folder));
  for (const std::string range : {"3", "4:3", "0:2", "a:b", "1:2:3", ":2"}) {
    const Outcome outcome = run_program(folder, "train " + config + " --profile-steps " + range);
    EXPECT_EQ(outcome.code, 2) << range;
    EXPECT_NE(outcome.err.find("--profile-steps: expected FIRST:LAST"), std::string::npos)
        << outcome.err;
  }
  EXPECT_FALSE(posix_files().exists(folder / "run"));
}

TEST(CeilingsFile, keeps_every_device) {
  const ScratchFolder folder;
  const std::string path = folder / "new/ceilings.json";
  EXPECT_FALSE(read_ceilings(posix_files(), path, "one"));
  write_ceilings(posix_files(), path, "one", {1e12, 2e12, 3e12, 0});
  write_ceilings(posix_files(), path, "two", {5e12, 6e12, 7e12, 8e12});
  write_ceilings(posix_files(), path, "one", {1e11, 2e12, 3e12, 0});
  const auto one = read_ceilings(posix_files(), path, "one");
  ASSERT_TRUE(one);
  EXPECT_EQ(one->bytes_per_s, 1e11);
  EXPECT_EQ(one->code_flops_per_s, 0);
  const auto two = read_ceilings(posix_files(), path, "two");
  ASSERT_TRUE(two);
  EXPECT_EQ(two->narrow_flops_per_s, 7e12);
  EXPECT_FALSE(read_ceilings(posix_files(), path, "three"));
}

TEST(CeilingsFile, names_what_is_wrong) {
  const ScratchFolder folder;
  for (const auto& [text, device, words] : std::vector<std::array<std::string, 3>>{
           {"[]", "cpu", "expected an object of devices"},
           {R"({"cpu": {"bytes_per_s": 1}})", "cpu", "expected a rate f32_flops_per_s"},
           {R"({"cpu": 3})", "cpu", "expected a rate bytes_per_s"}}) {
    const std::string path = folder.put("ceilings.json", text);
    try {
      read_ceilings(posix_files(), path, device);
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
    }
  }
}

TEST(CeilingsFile, is_read_by_the_second_call) {
  const ScratchFolder folder;
  const std::string config = folder.put("tiny.yaml", tiny_yaml(folder));
  const std::string call = "bench step --recipes fp32 --rounds 1 --threads 1 --ceilings " +
                           folder / "c.json" + " " + config;
  const Outcome first = run_program(folder, call), second = run_program(folder, call);
  EXPECT_EQ(first.code, 0) << first.err;
  EXPECT_NE(first.err.find("kept in"), std::string::npos) << first.err;
  EXPECT_EQ(second.code, 0) << second.err;
  EXPECT_EQ(second.err.find("kept in"), std::string::npos) << second.err;
  EXPECT_NE(second.err.find("as "), std::string::npos) << second.err;
}

}  // namespace
}  // namespace octet::test::bench_test
