// The program as a user calls it: exit codes and the one line of an error.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/program_run.h"

namespace octet::program_command {
namespace {

using test::Outcome;

Outcome run(const std::string& arguments) {
  const test::ScratchFolder folder;
  return test::run_program(folder, arguments);
}

struct BadCall {
  std::string name, arguments, line;
};

void PrintTo(const BadCall& call, std::ostream* out) {
  *out << call.name;
}

class BadUsage : public testing::TestWithParam<BadCall> {};

TEST_P(BadUsage, exits_with_2_and_one_line) {
  const Outcome outcome = run(GetParam().arguments);
  EXPECT_EQ(outcome.code, 2);
  EXPECT_EQ(outcome.out, "");
  EXPECT_EQ(outcome.err, "octet: " + GetParam().line + "\n");
}

const BadCall kBadCalls[] = {
    {"misspelt_command", "doctro",
     "unknown command doctro, the nearest is doctor (see octet --help)"},
    {"help_of_no_command", "doctro --help",
     "unknown command doctro, the nearest is doctor (see octet --help)"},
    {"help_before_no_command", "--help doctro",
     "unknown command doctro, the nearest is doctor (see octet --help)"},
    {"help_of_no_inner_command", "docs confguration --help",
     "unknown command confguration, the nearest is configuration (see octet docs --help)"},
    {"help_command_of_no_command", "help doctro",
     "unknown command doctro, the nearest is doctor (see octet --help)"},
    {"misspelt_help", "hlep", "unknown command hlep, the nearest is help (see octet --help)"},
    {"misspelt_flag", "doctor --jsn",
     "unknown flag --jsn, the nearest is --json (see octet doctor --help)"},
    {"misspelt_flag_with_value", "doctor --thread=3",
     "unknown flag --thread, the nearest is --threads (see octet doctor --help)"},
    {"misspelt_inner_command", "docs confguration",
     "unknown command confguration, the nearest is configuration (see octet docs --help)"},
    {"key_without_its_flag", "train llama-3m data.train=docs",
     "unknown argument data.train, the nearest is --set data.train=VALUE (see octet train --help)"},
    {"flag_of_the_configuration", "plan --config llama-3m",
     "unknown flag --config, the nearest is CONFIG without a flag (see octet plan --help)"},
    {"model_to_chat_with", "chat --model DIR",
     "unknown flag --model, the nearest is octet generate --model DIR --chat (see octet chat "
     "--help)"},
    {"superfluous_word", "doctor now", "unknown argument now (see octet doctor --help)"},
    {"missing_inner_command", "docs",
     "expected a command: configuration, models, scale-rules, types, kernels, keys, completion, "
     "man (see octet docs --help)"},
    {"thread_count_is_a_word", "doctor --threads many",
     "--threads: Value many not in range 0 to 4096 (see octet doctor --help)"},
    {"value_of_a_flag_that_takes_none", "--version=3",
     "version was given a disallowed flag override (see octet --help)"},
    {"misspelt_recipe", "train lama-3m",
     "expected a configuration file or the name of a recipe, got 'lama-3m'; the nearest is "
     "llama-3m (`octet recipes` lists them)"},
    {"unknown_shell", "docs completion fish",
     "shell: expected one of bash, zsh, got fish (see octet docs completion --help)"},
    {"unknown_instruction_set", "doctor --isa sse",
     "--isa: expected one of auto, scalar, avx2, avx512, amx, got sse (see octet doctor --help)"},
    {"format_in_capitals", "ptq --model a --calib b --out c --method max --format E4M3",
     "--format: expected one of e4m3, e5m2, hif8, int8, mxfp8, fp8-block, got E4M3; the nearest is "
     "e4m3 (see octet ptq --help)"},
};

INSTANTIATE_TEST_SUITE_P(calls, BadUsage, testing::ValuesIn(kBadCalls),
                         [](const auto& info) { return info.param.name; });

TEST(Program, without_a_command_names_them_all) {
  const Outcome outcome = run("");
  EXPECT_EQ(outcome.code, 2);
  EXPECT_NE(outcome.err.find("doctor"), std::string::npos);
  EXPECT_EQ(outcome.err.find('\n'), outcome.err.size() - 1);
}

TEST(Program, help_and_version_go_to_standard_output) {
  for (const char* arguments :
       {"--help", "doctor --help", "docs configuration --help", "--version"}) {
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.code, 0) << arguments;
    EXPECT_NE(outcome.out, "") << arguments;
    EXPECT_EQ(outcome.err, "") << arguments;
  }
}

TEST(Program, help_is_a_command) {
  for (const char* command : {"", "doctor", "docs configuration"}) {
    SCOPED_TRACE(command);
    const Outcome outcome = run(std::string("help ") + command);
    EXPECT_EQ(outcome.code, 0);
    EXPECT_EQ(outcome.out, run(std::string(command) + " --help").out);
  }
  EXPECT_EQ(run("help help").out, run("--help").out);
}

TEST(Program, every_command_has_the_global_flags) {
  const std::string listing = run("--help").out;
  std::string line;
  size_t n_commands = 0;
  for (size_t at = listing.find("Subcommands:"); at < listing.size();) {
    at = listing.find('\n', at) + 1;
    if (listing.compare(at, 2, "  ") != 0) break;
    const std::string name = listing.substr(at + 2, listing.find(' ', at + 2) - at - 2);
    if (name.empty()) continue;
    const std::string help = run(name + " --help").out;
    for (const char* flag :
         {"--threads", "--isa", "--device", "--seed", "--quiet", "--json", "--set", "--help"}) {
      EXPECT_NE(help.find(flag), std::string::npos) << name << " " << flag;
    }
    ++n_commands;
  }
  EXPECT_GE(n_commands, 2u);
}

TEST(Program, recipes_are_found_by_name) {
  const std::string folder = OCTET_SOURCE_DIR "/recipes/";
  const auto rows = nlohmann::json::parse(run("recipes --json").out);
  for (const auto& row : rows) {
    const std::string name = row.at("recipe"), file = row.at("file");
    EXPECT_TRUE(file.ends_with(name + ".yaml")) << file;
    EXPECT_EQ(posix_files().read_text(file),
              posix_files().read_text(folder + file.substr(file.find("/recipes/") + 9)));
    EXPECT_NE(row.at("what"), "") << name;
  }
  EXPECT_GE(rows.size(), 13u);
  const Outcome named = run("plan llama-3m --json");
  EXPECT_EQ(named.code, 0) << named.err;
  EXPECT_EQ(named.out, run("plan " + folder + "llama-3m.yaml --json").out);
}

// A file that is there is what its name means.
TEST(Program, a_file_comes_before_a_recipe_of_its_name) {
  const std::string folder = testing::TempDir() + "octet_recipe_" + std::to_string(getpid());
  std::filesystem::create_directories(folder);
  std::ofstream(folder + "/llama-3m") << "train: {batch: none}\n";
  const Outcome outcome =
      run("--version >/dev/null && cd " + folder + " && " OCTET_PROGRAM " plan llama-3m");
  std::filesystem::remove_all(folder);
  EXPECT_EQ(outcome.code, 2);
  EXPECT_NE(outcome.err.find("llama-3m:1: train.batch"), std::string::npos) << outcome.err;
}

TEST(Program, doctor_answers_in_json) {
  const Outcome outcome = run("doctor --json");  // 5: this machine's disk or memory is full
  ASSERT_TRUE(outcome.code == 0 || outcome.code == 5) << outcome.err;
  const auto rows = nlohmann::json::parse(outcome.out);
  std::vector<std::string> names;
  for (const auto& row : rows) names.push_back(row.at("what"));
  for (const char* name :
       {"cores", "memory", "avx2", "amx", "oneDNN", "cuda driver", "cuda module", "nvcc", "disk"}) {
    EXPECT_EQ(std::count(names.begin(), names.end(), name), 1) << name;
  }
}

// A device lacks what the table says it needs and has not, on whatever machine this is.
TEST(Program, doctor_exits_with_5_where_the_device_lacks_something) {
  for (const std::string device : {"cpu", "cuda"}) {
    const Outcome outcome = run("doctor --json --device " + device);
    std::string missing;
    for (const auto& row : nlohmann::json::parse(outcome.out)) {
      if (row.at("needed") != "yes" || row.at("there") != "no") continue;
      missing += (missing.empty() ? "" : ", ") + row.at("what").get<std::string>();
    }
    EXPECT_EQ(outcome.code, missing.empty() ? 0 : 5) << device;
    const std::string verdict = device + (missing.empty() ? ": ready, `octet train CONFIG"
                                                          : ": not ready, lacks " + missing);
    EXPECT_NE(run("doctor").out.find("\n" + verdict), std::string::npos) << verdict;
  }
}

TEST(Program, documentation_command_prints_the_page) {
  const std::string rules = run("docs scale-rules").out;
  EXPECT_TRUE(rules.starts_with("| op | scale of the result | data |"));
  EXPECT_NE(posix_files().read_text(OCTET_SOURCE_DIR "/docs/scalify.md").find(rules),
            std::string::npos)
      << "docs/scalify.md: expected the table of `octet docs scale-rules`";
  const std::string types = run("docs types").out;
  EXPECT_TRUE(types.starts_with("| type | factors of a GEMM |"));
  EXPECT_NE(posix_files().read_text(OCTET_SOURCE_DIR "/docs/numerics.md").find(types),
            std::string::npos)
      << "docs/numerics.md: expected the table of `octet docs types`";
  EXPECT_TRUE(run("docs configuration").out ==
              posix_files().read_text(OCTET_SOURCE_DIR "/docs/configuration.md"));
  EXPECT_TRUE(run("docs kernels").out ==
              posix_files().read_text(OCTET_SOURCE_DIR "/docs/kernels.md"))
      << "run: build/octet docs kernels > docs/kernels.md";
}

// Each page's table, told by a row that the page has.
TEST(Program, documentation_command_prints_the_table_as_json) {
  const auto row = [](const std::string& page, const std::string& column, const std::string& name) {
    for (const auto& one : nlohmann::json::parse(run("docs " + page + " --json").out))
      if (one.at(column) == name) return one;
    return nlohmann::json();
  };
  const nlohmann::json rescale = row("scale-rules", "op", "rescale");
  EXPECT_EQ(rescale.at("operands"), (std::vector<std::string>{"x", "factor"}));
  EXPECT_EQ(rescale.at("as_values"), std::vector<std::string>{"factor"});
  EXPECT_EQ(rescale.at("scale"), "that of the first operand");
  EXPECT_EQ(rescale.at("data"), "the op on data");
  for (const std::string page : {"keys", "configuration"}) {
    const nlohmann::json seq = row(page, "key", "model.seq");
    EXPECT_EQ(seq.at("default"), "256");
    EXPECT_EQ(seq.at("unit"), "tokens");
  }
  const nlohmann::json gemm = row("kernels", "op", "gemm");
  EXPECT_EQ(gemm.at("backend"), "cuda");
  EXPECT_EQ(gemm.at("row"), "few rows");
  const nlohmann::json llama = row("models", "model_type", "llama");
  EXPECT_EQ(llama.at("class"), "LlamaForCausalLM");
  EXPECT_NE(llama.at("keys").dump().find("hidden_size"), std::string::npos);
}

// Ops that `scale-rules` lists as without a rule have none.
TEST(Program, an_op_without_a_scale_rule_has_null_as_json) {
  const std::string page = run("docs scale-rules").out;
  const std::string without = page.substr(page.find("Without a rule: "));
  for (const auto& op : nlohmann::json::parse(run("docs scale-rules --json").out)) {
    const std::string name = op.at("op");
    const bool is_listed = without.find(" " + name + ",") != std::string::npos ||
                           without.find(" " + name + ".") != std::string::npos;
    EXPECT_EQ(op.at("scale").is_null(), is_listed) << name;
  }
}

TEST(Program, a_closed_pipe_is_no_error_and_a_full_device_is_one) {
  EXPECT_EQ(std::system(("bash -c 'set -o pipefail; " OCTET_PROGRAM " docs configuration | true'")),
            0);
  for (const std::string arguments :
       {"--help", "--version", "train --help", "docs configuration", "formats list", "doctor"}) {
    const std::string full =
        std::string(OCTET_PROGRAM) + " " + arguments + " 2>&1 >/dev/full | wc -l | grep -qx 1";
    EXPECT_EQ(WEXITSTATUS(std::system(full.c_str())), 0) << arguments;
    const std::string code =
        std::string(OCTET_PROGRAM) + " " + arguments + " >/dev/full 2>/dev/null";
    EXPECT_EQ(WEXITSTATUS(std::system(code.c_str())), 3) << arguments;
  }
}

// The flags of a command and of its own commands that take a real number, as its help lists them.
std::vector<std::string> real_flags(const std::string& command) {
  std::vector<std::string> flags;
  const Outcome page = run(command + " --help");
  EXPECT_EQ(page.code, 0) << command << ": " << page.err;
  if (page.code != 0) return flags;
  std::istringstream help(page.out);
  bool lists_commands = false;
  for (std::string line; std::getline(help, line);) {
    std::istringstream words(line);
    std::string first, second;
    words >> first >> second;
    if (first.ends_with(',')) first.pop_back();  // before a second name
    lists_commands |= line == "Subcommands:";
    if (first.starts_with("--") && second.starts_with("FLOAT")) {
      flags.push_back(command + " " + first);
    } else if (lists_commands && line.starts_with("  ") && line[2] != ' ') {
      for (std::string& flag : real_flags(command + " " + first)) flags.push_back(std::move(flag));
    }
  }
  return flags;
}

TEST(Program, every_flag_of_a_real_number_refuses_what_is_not_finite) {
  const std::vector<std::string> flags = real_flags("");
  EXPECT_GE(flags.size(), 8u);
  for (const std::string& flag : flags) {
    for (const char* value : {"nan", "-nan", "inf", "-inf", "1e999", "infinity"}) {
      const Outcome outcome = run(flag + "=" + value);
      EXPECT_EQ(outcome.code, 2) << flag << " " << value;
      EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
      EXPECT_NE(outcome.err.find(flag.substr(flag.rfind(' ') + 1)), std::string::npos)
          << outcome.err;
    }
  }
}

}  // namespace
}  // namespace octet::program_command
