// octet tokenize in a pipe.
#include <gtest/gtest.h>

#include "cli/program_run.h"

namespace octet::program_tokenize_test {
namespace {

TEST(Tokenize, gives_back_the_bytes_that_it_was_given) {
  const test::ScratchFolder folder;
  std::string bytes = "a\r\n\x01\x7f\x1b[0m \xff\xc3 \u200f\u202b \u00e9\n";
  bytes += std::string("\0b", 2);
  const std::string text = folder.put("text", bytes);
  const std::string tiny = OCTET_SOURCE_DIR "/tests/fixtures/tokenizers/";
  for (const std::string& name : {std::string("bytes"), tiny + "gpt2.json", tiny + "vocab.json"}) {
    const test::Outcome ids = test::run_program(folder, "tokenize --ids --tokenizer " + name, text);
    ASSERT_EQ(ids.code, 0) << ids.err;
    const test::Outcome back = test::run_program(folder, "tokenize --decode --tokenizer " + name,
                                                 folder.put("ids", ids.out));
    EXPECT_EQ(back.out, bytes) << name;
  }
}

}  // namespace
}  // namespace octet::program_tokenize_test
