// The fuzzers' corpora, and simple mutations of them, without a fuzzer: what was found once stays
// found.
#include <gtest/gtest.h>

#include "base/files.h"
#include "fuzz/fuzz_targets.h"

namespace octet::fuzz {
namespace {

const std::string kCorpus = OCTET_SOURCE_DIR "/tests/fuzz/corpus";

class Replay : public testing::TestWithParam<TargetRow> {
 protected:
  std::vector<std::string> inputs() const {
    const std::string folder = join_path(kCorpus, GetParam().name);
    std::vector<std::string> inputs;
    for (const DirectoryEntry& entry : posix_files().list(folder)) {
      inputs.push_back(posix_files().read_text(join_path(folder, entry.name)));
    }
    return inputs;
  }
};

TEST_P(Replay, corpus_holds_no_surprise) {
  const std::vector<std::string> all = inputs();
  EXPECT_GE(all.size(), 3u);
  for (const std::string& bytes : all) EXPECT_NO_THROW(GetParam().target(bytes)) << bytes;
}

TEST_P(Replay, inputs_cut_short_hold_no_surprise) {
  for (const std::string& bytes : inputs()) {
    for (size_t n = 0; n < bytes.size(); ++n) {
      EXPECT_NO_THROW(GetParam().target(bytes.substr(0, n))) << bytes << " cut to " << n;
    }
  }
}

TEST_P(Replay, changed_bytes_hold_no_surprise) {
  for (const std::string& bytes : inputs()) {
    for (size_t at = 0; at < bytes.size(); ++at) {
      for (const char change : {'\x01', '\x10', '\x80', '\xff'}) {
        std::string changed = bytes;
        changed[at] = static_cast<char>(changed[at] ^ change);
        EXPECT_NO_THROW(GetParam().target(changed)) << changed;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(all, Replay, testing::ValuesIn(targets()),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace octet::fuzz
