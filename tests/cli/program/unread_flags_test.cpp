// Flags that nothing reads in what a command line asks for: each is refused by its name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/program_run.h"

namespace octet::program_unread_flags_test {
namespace {

using testing::HasSubstr;

struct UnreadCase {
  std::string arguments, error;
};

TEST(UnreadFlags, are_refused_by_their_names) {
  const test::ScratchFolder folder;
  const std::string tokenizers = OCTET_SOURCE_DIR "/tests/fixtures/tokenizers/",
                    text = folder.put("some.txt", "One line: of text\nand another");
  const UnreadCase cases[] = {
      {"tokenize --ids --pattern gpt2 --tokenizer bytes",
       "--pattern: expected it with tiktoken's ranks or a vocab.json, got 'bytes'"},
      {"tokenize --ids --pattern gpt2 --tokenizer " + tokenizers + "gpt2.json",
       "--pattern: expected it with tiktoken's ranks"},
      {"tokenize --ids --pattern gpt2 --tokenizer " + tokenizers + "sp_bpe.model",
       "--pattern: expected it with tiktoken's ranks"},
      {"plan llama-3m --lr 1", "--lr"},
      {"plan llama-3m --epochs 1", "--epochs"},
      {"doctor --set train.batch=3", "--set: expected it with --prove or --ranks"},
      {"doctor --seed 3", "--seed: expected it with --prove"},
      {"bench step --over processes", "--over: expected it with --ranks"},
      {"bench step --ranks 2 --by-kernel", "--by-kernel: expected it with steps of one rank"},
      {"bench links --recipes bf16", "--recipes: expected it with"},
      {"bench optimizer --recipes bf16", "--recipes: expected it with"},
      {"formats list --device cuda", "--device: expected it with train"},
      {"study formats --device cuda", "--device: expected it with train"},
      {"inspect " + text + " --device cuda", "--device: expected it with train"},
      {"data inspect " + text, "expected a run's configuration, which names the data"},
  };
  for (const UnreadCase& one : cases) {
    const test::Outcome outcome = test::run_program(folder, one.arguments);
    EXPECT_EQ(outcome.code, 2) << one.arguments;
    EXPECT_THAT(outcome.err, HasSubstr(one.error)) << one.arguments;
  }
  for (const std::string& taken :
       {"tokenize --ids --pattern gpt2 --tokenizer " + tokenizers + "tiny.tiktoken",
        std::string("formats list --device cpu")}) {
    EXPECT_EQ(test::run_program(folder, taken).code, 0) << taken;
  }
}

TEST(Tokenize, tells_of_tokens_that_stand_beside_the_file) {
  const test::ScratchFolder folder;
  folder.put("tokenizer.json",
             posix_files().read_text(OCTET_SOURCE_DIR "/tests/fixtures/tokenizers/gpt2.json"));
  folder.put("tokenizer_config.json", R"({"additional_special_tokens":["<here>"], "foo": 1})");
  for (const std::string& path : {folder.path(), folder / "tokenizer.json"}) {
    const test::Outcome ids = test::run_program(folder, "tokenize --ids --tokenizer " + path);
    EXPECT_EQ(ids.code, 0) << ids.err;
    EXPECT_THAT(ids.err, HasSubstr("'<here>' is named beside tokenizer.json"));
    EXPECT_THAT(ids.err, HasSubstr("tokenizer_config.json: 'foo' is not known"));
  }
}

}  // namespace
}  // namespace octet::program_unread_flags_test
