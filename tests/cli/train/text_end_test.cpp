// Texts among conversations: their end, and runs that were begun before data.text_end.
#include <gtest/gtest.h>

#include "cli/program_run.h"
#include "cli/train/tiny_run.h"

namespace octet {
namespace {

using test::ScratchFolder;

// Without the key in a file that has it on a line of its own, or between commas. The size stays:
// COMPLETE says that of a manifest.
void forget_key(const std::string& path, const std::string& begin, const std::string& end) {
  std::string text = posix_files().read_text(path);
  const size_t at = text.find(begin);
  ASSERT_NE(at, text.npos) << text;
  const size_t n = text.find(end, at) + end.size() - at;
  text.erase(at, n);
  text.append(n, '\n');
  write_atomically(posix_files(), path, text);
}

TEST(TextEnd, of_a_run_that_does_not_record_it_stays_away) {
  const ScratchFolder folder;
  const std::string config = folder.put("t.yaml", test::tiny_yaml(folder));
  std::string lines;
  for (int i = 0; i < 40; ++i)
    lines += R"({"text": "abc abc abc abc"})"
             "\n";
  const std::string train = fmt::format(
      "train {} --set data.train=[{}] --set data.chat.template=plain --set train.steps=2 "
      "--set train.save_every=2",
      config, folder.put("texts.jsonl", lines));
  ASSERT_EQ(test::run_program(folder, train + " --set data.text_end=false").code, 0);
  const std::string run = folder / "run";
  const auto text_end = [&] {
    const std::string text = posix_files().read_text(run + "/config.yaml");
    return text.substr(text.find("text_end: ") + 10, 5);
  };
  ASSERT_EQ(text_end(), "false");
  for (const DirectoryEntry& entry : posix_files().list(run + "/ckpt")) {
    const std::string manifest = run + "/ckpt/" + entry.name + "/manifest.json";
    if (posix_files().exists(manifest)) forget_key(manifest, "\"data.text_end\"", ",");
  }
  forget_key(run + "/config.yaml", "  text_end: ", "\n");
  const test::Outcome resumed = test::run_program(folder, train + " --resume --set train.steps=3");
  EXPECT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_EQ(text_end(), "false");
  EXPECT_EQ(test::run_program(folder, train + " --resume --set train.steps=4 "
                                              "--set data.text_end=true")
                .code,
            2);
}

}  // namespace
}  // namespace octet
