// Tables as a terminal shows them: within its columns, figures with four digits, whole by --wide.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <sstream>

#include "cli/program_run.h"

namespace octet::test::program_terminal_test {
namespace {

// Lines that the program writes to a terminal of so many columns.
std::vector<std::string> on_terminal(std::vector<std::string> arguments, unsigned short columns) {
  winsize size{};
  size.ws_row = 50;
  size.ws_col = columns;
  int terminal = -1;
  const pid_t pid = ::forkpty(&terminal, nullptr, nullptr, &size);
  if (pid == 0) test::become_program(std::move(arguments));
  std::string text;
  char buffer[4096];
  for (ssize_t n = 0; (n = ::read(terminal, buffer, sizeof(buffer))) > 0;)
    text.append(buffer, static_cast<size_t>(n));
  ::close(terminal);
  int status = 0;
  ::waitpid(pid, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << text;
  std::erase(text, '\r');
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

size_t longest(const std::vector<std::string>& lines) {
  size_t most = 0;
  for (const std::string& line : lines) most = std::max(most, line.size());
  return most;
}

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

const std::vector<std::string> kTensors = {
    "inspect", std::string(OCTET_SOURCE_DIR) + "/recipes/demo/model", "--quiet"};

std::vector<std::string> with(std::vector<std::string> arguments, const std::string& more) {
  arguments.push_back(more);
  return arguments;
}

TEST(Terminal, tables_lie_within_its_columns) {
  for (const unsigned short columns : {40, 60, 80}) {
    const std::vector<std::string> lines = on_terminal(kTensors, columns);
    EXPECT_LE(longest(lines), columns);
    EXPECT_THAT(joined(lines), testing::HasSubstr("bytes"));
    EXPECT_THAT(joined(lines), testing::HasSubstr("shape"));
  }
  EXPECT_THAT(joined(on_terminal(kTensors, 40)), testing::HasSubstr("..."));
}

TEST(Terminal, wide_shows_what_a_pipe_gets) {
  const ScratchFolder folder;
  const std::string piped = run_program(folder, "inspect " + kTensors[1] + " --quiet").out;
  EXPECT_EQ(joined(on_terminal(with(kTensors, "--wide"), 40)), piped);
  EXPECT_EQ(joined(on_terminal(kTensors, 400)), piped);
}

// A pipe gets the loss with six digits behind the point.
TEST(Terminal, figures_have_four_digits) {
  const ScratchFolder folder;
  const std::string text = folder.put("text.txt", std::string(400, 'a') + "bcd");
  const std::vector<std::string> eval = {"eval", "--model", kTensors[1], "--data",
                                         text,   "--seq",   "64",        "--quiet"};
  const std::string shown = joined(on_terminal(eval, 300));
  const auto has_long_figure = [](const std::string& text) {
    std::istringstream words(text);
    for (std::string word; words >> word;) {
      const size_t point = word.find('.');
      const bool is_figure =
          point != std::string::npos && word.find_first_not_of("0123456789.-") == std::string::npos;
      const size_t first = word.find_first_not_of("0.-");
      if (!is_figure || first == std::string::npos) continue;
      size_t n = 0;
      for (size_t i = first; i < word.size(); ++i) n += word[i] != '.' ? 1 : 0;
      if (n > 4 && point < first + 4) return true;
    }
    return false;
  };
  EXPECT_FALSE(has_long_figure(shown)) << shown;
  EXPECT_TRUE(has_long_figure(joined(on_terminal(with(eval, "--wide"), 300))));
}

}  // namespace
}  // namespace octet::test::program_terminal_test
