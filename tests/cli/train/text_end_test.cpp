// Texts among conversations: their end, and runs that were begun before data.text_end.
#include <gtest/gtest.h>

#include <span>

#include "cli/program_run.h"
#include "cli/train/tiny_run.h"
#include "io/checkpoint_marker.h"
#include "io/manifest.h"

namespace octet::train_text_end_test {
namespace {

using test::ScratchFolder;

// Without a key that has a line of its own.
void forget_key(const std::string& path, const std::string& begin, const std::string& end) {
  std::string text = posix_files().read_text(path);
  const size_t at = text.find(begin);
  ASSERT_NE(at, text.npos) << text;
  text.erase(at, text.find(end, at) + end.size() - at);
  write_atomically(posix_files(), path, text);
}

// A checkpoint as it was before there was the key.
void forget_in_checkpoint(const std::string& folder, const std::string& key) {
  Files& files = posix_files();
  const std::string path = folder + "/manifest.json", complete = folder + "/COMPLETE";
  Manifest manifest = parse_manifest(files.read_text(path), path);
  ASSERT_EQ(manifest.config.erase(key), 1u);
  const std::string text = manifest_to_json(manifest);
  files.remove(path);
  Marker marker = read_marker(files, complete);
  marker["manifest.json"] = write_marked(
      files, path, [&](FileWriter& out) { out.write(std::as_bytes(std::span(text))); });
  write_atomically(files, complete, marker_to_json(marker));
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
    const std::string checkpoint = run + "/ckpt/" + entry.name;
    if (posix_files().exists(checkpoint + "/COMPLETE"))
      forget_in_checkpoint(checkpoint, "data.text_end");
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
}  // namespace octet::train_text_end_test
