// Pass tests as text: tests/passes/*.txt, each a list of cases
//   === name
//   passes a, b
//   <graph>
//   ---
//   <graph that the passes make of it>
// A blank line or a line that begins with # is nothing.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "base/named_enum.h"
#include "ir/parse.h"
#include "ir/print.h"
#include "passes/driver.h"

namespace octet::passes_text_test {
namespace {

struct TextCase {
  std::string file, name;
  std::string before = {}, after = {};
  std::vector<std::string> passes = {};
  ParallelOptions parallel = {};
};

std::vector<std::string> split_names(const std::string& text) {
  std::vector<std::string> names;
  std::istringstream stream(text);
  for (std::string name; std::getline(stream, name, ',');) {
    std::erase(name, ' ');
    names.push_back(name);
  }
  return names;
}

void read_cases(const std::filesystem::path& path, std::vector<TextCase>& cases) {
  std::ifstream file(path);
  bool is_after = false;
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#') continue;
    if (line.rfind("=== ", 0) == 0) {
      cases.push_back({.file = path.stem(), .name = line.substr(4)});
      is_after = false;
    } else if (line.rfind("passes ", 0) == 0) {
      cases.back().passes = split_names(line.substr(7));
    } else if (line.rfind("ranks ", 0) == 0) {
      cases.back().parallel.ranks = std::stoll(line.substr(6));
      cases.back().parallel.rank = 1;
      cases.back().parallel.shard = ShardStage::parameters;
    } else if (line.rfind("ranks_a_host ", 0) == 0) {
      cases.back().parallel.ranks_a_host = std::stoll(line.substr(13));
    } else if (line.rfind("reduce ", 0) == 0) {
      cases.back().parallel.reduce = enum_from_name<ReduceFormat>(line.substr(7)).value();
    } else if (line.rfind("shard ", 0) == 0) {
      cases.back().parallel.shard = enum_from_name<ShardStage>(line.substr(6)).value();
    } else if (line == "---") {
      is_after = true;
    } else {
      (is_after ? cases.back().after : cases.back().before) += line + "\n";
    }
  }
}

const std::vector<TextCase>& text_cases() {
  static const std::vector<TextCase> all = [] {
    std::vector<std::filesystem::path> files;
    const std::filesystem::path folder = std::string(OCTET_SOURCE_DIR) + "/tests/passes";
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      if (entry.path().extension() == ".txt") files.push_back(entry.path());
    }
    std::sort(files.begin(), files.end());
    std::vector<TextCase> cases;
    for (const auto& file : files) read_cases(file, cases);
    return cases;
  }();
  return all;
}

void PrintTo(const TextCase& c, std::ostream* out) {
  *out << c.file << " " << c.name;
}

class PassText : public testing::TestWithParam<TextCase> {};

TEST_P(PassText, becomes) {
  const TextCase& c = GetParam();
  const Graph before = parse_graph(c.before, c.file + " " + c.name + ", before");
  const Graph after = run_passes(before, c.passes, c.parallel);
  EXPECT_EQ(print(after), print(parse_graph(c.after, c.file + " " + c.name + ", after")));
}

INSTANTIATE_TEST_SUITE_P(Texts, PassText, testing::ValuesIn(text_cases()),
                         [](const auto& info) { return info.param.file + "_" + info.param.name; });

TEST(PassText, every_pass_has_a_case_of_its_own) {
  std::set<std::string> covered;
  for (const TextCase& c : text_cases()) covered.insert(c.passes.back());
  for (const Pass& pass : all_passes()) {
    EXPECT_EQ(covered.count(std::string(pass.name)), 1u) << pass.name;
  }
}

}  // namespace
}  // namespace octet::passes_text_test
