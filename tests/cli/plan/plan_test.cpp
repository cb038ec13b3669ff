// octet plan as a user calls it: every key, sums, budgets, and nothing is run.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "cli/program_run.h"

namespace octet::plan_command {
namespace {

using test::Outcome;

using Json = nlohmann::json;

Outcome run(const std::string& arguments) {
  const test::ScratchFolder folder;
  return test::run_program(folder, "plan " + arguments);
}

std::string shipped(const std::string& name) {
  return std::string(OCTET_SOURCE_DIR) + "/recipes/" + name + ".yaml ";
}

Json plan(const std::string& arguments) {
  const Outcome outcome = run(arguments + " --json");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  return Json::parse(outcome.out);
}

int64_t sum(const Json& object) {
  int64_t total = 0;
  for (const auto& [name, bytes] : object.items()) total += bytes.get<int64_t>();
  return total;
}

TEST(PlanCommand, json_has_every_key_of_the_7b_model_in_two_seconds) {
  const auto begin = std::chrono::steady_clock::now();
  const Json json = plan(shipped("llama-2-7b") + "--set train.batch=1");
  const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
  EXPECT_LT(time.count(), 2);
  for (const char* key : {"parameters", "masters", "weight_copies", "gradients", "optimizer",
                          "activations", "workspace", "other"})
    EXPECT_TRUE(json.at("by_role").at(key).is_number_integer()) << key;
  EXPECT_EQ(sum(json.at("by_role")), json.at("peak_bytes").get<int64_t>());
  EXPECT_EQ(sum(json.at("arenas")), json.at("peak_bytes").get<int64_t>());
  EXPECT_EQ(json.at("u_bytes"), 2048 * 4096 * 2);
  EXPECT_EQ(json.at("batch"), 1);
  EXPECT_EQ(json.at("seq"), 2048);
  EXPECT_EQ(json.at("hidden"), 4096);
  EXPECT_EQ(json.at("params"), 6738415616);
  EXPECT_EQ(json.at("kept_per_layer_bytes").size(), 32u);
  EXPECT_LE(json.at("kept_per_layer_bytes")[31].get<double>(), 8.3 * 2048 * 4096 * 2);
  EXPECT_EQ(json.at("ops").at("gemm e4m3 x e4m3"), 7 * 32);
  EXPECT_EQ(json.at("ops").at("gemm e5m2 x e4m3"), 7 * 32 * 2);
  EXPECT_EQ(json.at("ops").at("gemm bf16 x bf16"), 3);  // the head
  EXPECT_TRUE(json.at("near_misses").is_array());
  EXPECT_FALSE(json.contains("buffers"));
}

TEST(PlanCommand, every_shipped_recipe_file_can_be_planned) {
  for (const char* name : {"llama-25m", "llama-124m", "llama-1.2b", "llama-2-7b", "llama-2-13b",
                           "llama-30b", "olmo-1b", "gpt2-124m"}) {
    const Json json = plan(shipped(name));
    EXPECT_EQ(sum(json.at("by_role")), json.at("peak_bytes").get<int64_t>()) << name;
  }
}

TEST(PlanCommand, buffers_are_listed_with_place_and_life) {
  const Json json = plan(shipped("llama-25m") + "--buffers");
  const int64_t n_steps = json.at("n_steps");
  std::map<std::string, int64_t> end;
  for (const Json& b : json.at("buffers")) {
    for (const char* key :
         {"name", "role", "layer", "dtype", "offset", "bytes", "first_step", "last_step", "lane"})
      EXPECT_TRUE(b.contains(key)) << key;
    EXPECT_LE(b.at("first_step").get<int64_t>(), b.at("last_step").get<int64_t>());
    EXPECT_LE(b.at("last_step").get<int64_t>(), n_steps);
    int64_t& arena = end[b.at("lane")];
    arena = std::max(arena, b.at("offset").get<int64_t>() + b.at("bytes").get<int64_t>());
  }
  for (const auto& [arena, bytes] : end) EXPECT_LE(bytes, json.at("arenas").at(arena)) << arena;
}

TEST(PlanCommand, steps_print_the_program) {
  const Outcome outcome = run(shipped("llama-25m") + "--steps");
  EXPECT_EQ(outcome.code, 0);
  EXPECT_NE(outcome.out.find("gemm bf16 x bf16"), std::string::npos);
  EXPECT_NE(outcome.out.find("\"model.norm.weight\""), std::string::npos);
}

TEST(PlanCommand, a_budget_chooses_what_is_computed_again) {
  const std::string file = shipped("llama-2-7b") + "--set recipe=bf16 --set train.batch=8 ";
  const int64_t none = plan(file).at("peak_bytes");
  const Json fitted = plan(file + "--set train.memory_budget=" + std::to_string(none * 9 / 10));
  EXPECT_LE(fitted.at("peak_bytes").get<int64_t>(), none * 9 / 10);
  EXPECT_LE(fitted.at("kept_per_layer_bytes")[3].get<double>(),
            11.6 * fitted.at("u_bytes").get<double>());
}

// Settings of the line "  what fits: A (2.0 GiB); B C (1.9 GiB)", each as flags of the command.
std::vector<std::string> named_settings(const std::string& message) {
  const std::string mark = "\n  what fits: ";
  std::vector<std::string> all;
  const size_t begin = message.find(mark);
  if (begin == std::string::npos) return all;
  std::string rest = message.substr(begin + mark.size());
  for (size_t end = 0; (end = rest.find(" (")) != std::string::npos;) {
    std::istringstream keys(rest.substr(0, end));
    all.emplace_back();
    for (std::string key; keys >> key;) all.back() += " --set " + key;
    const size_t next = rest.find("; ", end);
    rest.erase(0, next == std::string::npos ? rest.size() : next + 2);
  }
  return all;
}

// Typed as they are named, they are planned within the budget.
TEST(PlanCommand, a_budget_that_nothing_fits_is_exit_5_and_names_what_does_fit) {
  for (const std::string& line :
       {shipped("llama-2-7b") + "--set train.batch=8 --set train.memory_budget=45000000000",
        shipped("llama-124m") + "--set train.memory_budget=2GiB",
        shipped("llama-124m") + "--set train.memory_budget=700MiB",
        shipped("llama-124m") + "--set recipe=coat --set train.memory_budget=900MiB"}) {
    SCOPED_TRACE(line);
    const Outcome outcome = run(line);
    EXPECT_EQ(outcome.code, 5);
    EXPECT_EQ(outcome.out, "");
    EXPECT_EQ(outcome.err.rfind("octet: [memory] expected at most ", 0), 0u) << outcome.err;
    EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 3) << outcome.err;
    const std::vector<std::string> settings = named_settings(outcome.err);
    EXPECT_FALSE(settings.empty()) << outcome.err;
    for (const std::string& setting : settings) EXPECT_EQ(run(line + setting).code, 0) << setting;
  }
}

// Ranks of several hosts, which a machine without a GPU plans as well.
TEST(PlanCommand, takes_more_ranks_than_a_host_has_gpus) {
  for (const std::string stage : {"none", "optimizer", "gradients", "parameters"}) {
    const auto held = [&](int ranks) {
      const Json json = plan(shipped("llama-25m") + "--device cuda --set recipe=coat --ranks " +
                             std::to_string(ranks) + " --set parallel.shard=" + stage);
      EXPECT_EQ(sum(json.at("by_role")), json.at("peak_bytes").get<int64_t>());
      return json.at("by_role").at("optimizer").get<int64_t>();
    };
    EXPECT_EQ(held(16) < held(8), stage != "none") << stage;
    EXPECT_EQ(held(100) < held(16), stage != "none") << stage;
  }
}

TEST(PlanCommand, weight_copies_that_are_kept_have_a_role) {
  const auto copies = [](const std::string& device, const std::string& choice) {
    return plan(shipped("llama-25m") + "--device " + device +
                " --set recipe=coat --set recipe.weight_copy=" + choice)
        .at("by_role")
        .at("weight_copies")
        .get<int64_t>();
  };
  const int64_t weights = 8 * (4 * 512 * 512 + 3 * 512 * 1408);
  for (const std::string device : {"cpu", "cuda"}) {
    EXPECT_EQ(copies(device, "per_use"), 0);
    // And a scale for each of 4 groups. Products on the CPU read codes that lie either way.
    const int layouts = device == "cpu" ? 1 : 2;
    EXPECT_NEAR(copies(device, "per_step"), layouts * weights, 32 * 256);
    EXPECT_NEAR(copies(device, "w_only"), weights, 32 * 256);
  }
}

TEST(PlanCommand, says_whether_the_run_is_deterministic) {
  for (const bool asked : {false, true}) {
    const std::string run_file = shipped("llama-25m") + "--device cuda --set train.deterministic=" +
                                 (asked ? "true" : "false");
    EXPECT_EQ(plan(run_file).at("deterministic").get<bool>(), asked);
    EXPECT_EQ(run(run_file).out.find(", deterministic,") != std::string::npos, asked);
  }
}

TEST(PlanCommand, a_deterministic_run_takes_more_memory_on_a_gpu_alone) {
  const auto peak = [](const std::string& device, const std::string& deterministic) {
    return plan(shipped("llama-2-7b") + "--set train.batch=8 --device " + device +
                " --set train.deterministic=" + deterministic)
        .at("peak_bytes")
        .get<int64_t>();
  };
  EXPECT_GT(peak("cuda", "true"), peak("cuda", "false") + (int64_t{1} << 30));
  EXPECT_EQ(peak("cpu", "true"), peak("cpu", "false"));
}

TEST(PlanCommand, every_fusion_fires_in_every_shipped_model_and_recipe) {
  for (const char* model : {"llama-25m", "gpt2-124m", "olmo-1b"}) {
    for (const char* recipe : {"fp8_linear", "coat", "coat-fast", "hif8"}) {
      for (const char* scaling : {"current", "delayed"}) {
        const Json json = plan(shipped(model) + "--set recipe.base=" + recipe +
                               " --set recipe.scaling=" + scaling);
        EXPECT_EQ(json.at("near_misses").size(), 0u) << model << " " << recipe;
      }
    }
  }
}

// The example at the top of docs/configuration.md is one that a user can start from.
TEST(PlanCommand, plans_the_example_of_the_reference_page) {
  const std::string page = posix_files().read_text(OCTET_SOURCE_DIR "/docs/configuration.md");
  const size_t fence = page.find("```"), begin = page.find('\n', fence) + 1;
  const std::string example = page.substr(begin, page.find("```", begin) - begin);
  const std::string path =
      testing::TempDir() + "octet_plan_example_" + std::to_string(getpid()) + ".yaml";
  std::ofstream(path) << example;
  const Outcome outcome = run(path);
  std::remove(path.c_str());
  EXPECT_EQ(outcome.code, 0) << example << outcome.err;
}

TEST(PlanCommand, device_memory_lists_settings_that_fit_and_their_speed) {
  const Outcome found = run(shipped("llama-124m") + "--device-memory 6GiB --json");
  EXPECT_EQ(found.code, 0) << found.err;
  const Json rows = Json::parse(found.out);
  ASSERT_FALSE(rows.empty());
  for (const Json& row : rows) {
    EXPECT_LE(row.at("memory").get<int64_t>(), int64_t{6} << 30);
    EXPECT_GT(row.at("tokens/s").get<double>(), 1e5);
  }
  const Outcome none = run(shipped("llama-2-7b") + "--device-memory 2GiB");
  EXPECT_EQ(none.code, 5);
  EXPECT_NE(none.err.find("--device-memory: none of"), std::string::npos) << none.err;
  for (const std::string text : {"much", "-3GiB", "0", "''"}) {
    const Outcome refused = run(shipped("llama-124m") + "--device-memory " + text);
    EXPECT_EQ(refused.code, 2) << text;
    EXPECT_NE(refused.err.find("--device-memory"), std::string::npos) << refused.err;
  }
  for (const std::string other : {"--steps", "--texts 2", "--ranks 2", "--set parallel.ranks=2"}) {
    const Outcome refused = run(shipped("llama-124m") + "--device-memory 6GiB " + other);
    EXPECT_EQ(refused.code, 2) << other;
    EXPECT_NE(refused.err.find("--device-memory"), std::string::npos) << refused.err;
  }
}

}  // namespace
}  // namespace octet::plan_command
