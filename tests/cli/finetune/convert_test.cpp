// Results of `octet convert` for adapters by its flags, and which of them do not go together.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/finetune/small_model.h"
#include "cli/program_run.h"
#include "infer/export.h"
#include "infer/model_source.h"
#include "infer/weights.h"
#include "text/tokenizer.h"

namespace octet::finetune_convert_test {
namespace {

using test::Fixture;
using test::Outcome;
using test::run_program;
using test::sets_with;
using test::Tuner;
using testing::HasSubstr;

// A run with adapters in "run", and what PEFT reads of it in "adapter".
struct Converted : Fixture {
  Converted() {
    Tuner tuner(options, sets_with({"recipe=fp32", "train.steps=2"}));
    tuner.trainer.run({StartMode::fresh, tuner.loaded.source}, {});
    export_adapter(posix_files(), find_model_source(posix_files(), options.out),
                   folder / "adapter");
  }
  Outcome convert(const std::string& arguments) const {
    return run_program(folder, "convert --quiet " + arguments);
  }
  std::string weights(const std::string& name) const {
    return posix_files().read_text(folder / (name + "/model.safetensors"));
  }
};

TEST(ConvertAdapters, flags_go_together_or_are_refused_by_name) {
  const Converted f;
  const std::string model = f.options.model + " ", run = f.options.out + " ";
  const std::string adapter = " --adapter " + f.folder / "adapter";
  const std::string out = f.folder / "out", file = f.folder / "out.gguf";
  const std::string gguf = f.folder.put("in.gguf", "GGUF") + " ";
  const std::pair<std::string, std::string> refused[] = {
      {model + out + " --merge", "--merge"},
      {model + file + " --merge", "--merge"},
      {run + out + " --adapter-only --merge", "--merge"},
      {run + out + " --adapter-only --dtype f32", "--dtype"},
      {run + out + " --adapter-only --max-shard 5GB", "--max-shard"},
      {run + out + " --adapter-only --verify", "--verify"},
      {run + out + adapter, "--adapter"},
      {model + out + " --adapter-only" + adapter, "lora.rank"},
      {run + file + " --adapter-only", "--adapter-only"},
      {model + file + " --fold-norms", "--fold-norms"},
      {model + file + " --max-shard 5GB" + adapter, "--max-shard"},
      {model + f.folder / "out.GGUF" + " --max-shard 5GB", "out.GGUF', which is one file"},
      {gguf + out + adapter, "--adapter"},
      {gguf + out + " --merge", "--merge"},
      {gguf + out + " --adapter-only", "--adapter-only"},
      {gguf + out + " --fold-norms", "--fold-norms"},
      {gguf + out + " --add-tokens " + f.folder.put("new.txt", "x"), "--add-tokens"},
      {gguf + file, "GGUF"},
  };
  for (const auto& [arguments, named] : refused) {
    const Outcome outcome = f.convert(arguments);
    EXPECT_NE(outcome.code, 0) << arguments;
    EXPECT_THAT(outcome.err, HasSubstr(named)) << arguments;
    EXPECT_FALSE(posix_files().exists(out) || posix_files().exists(file)) << arguments;
  }
}

TEST(ConvertAdapters, all_ways_to_name_them_merge_the_same_weights) {
  const Converted f;
  const std::string adapter = f.folder / "adapter", to = " " + f.folder.path() + "/";
  const std::pair<std::string, std::string> ways[] = {
      {"of_run", f.options.out + to + "of_run --merge"},
      {"beside", f.options.model + to + "beside --merge --adapter " + adapter},
      {"unsaid", f.options.model + to + "unsaid --verify --adapter " + adapter},
      {"alone", adapter + to + "alone --merge"},
  };
  for (const auto& [name, arguments] : ways) {
    const Outcome outcome = f.convert(arguments + " --dtype f32");
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_EQ(f.weights(name), f.weights("of_run")) << name;
  }
  EXPECT_TRUE(posix_files().exists(f.folder / "unsaid/octet_verify.json"));
  EXPECT_NE(f.weights("of_run"), f.weights("model"));
}

// A model with four rows more than its tokenizer has tokens.
struct Padded {
  explicit Padded(bool tied) {
    spec.vocab = 424;
    spec.tied = tied;
    model = test::put_model(folder, spec);
    folder.put("model/tokenizer.json",
               posix_files().read_text(OCTET_SOURCE_DIR "/tests/fixtures/tokenizers/gpt2.json"));
    folder.put(
        "model/tokenizer_config.json",  // a length as transformers writes it
        R"({"added_tokens_decoder": {}, "model_max_length": 1000000000000000019884624838656})");
  }
  Outcome add(const std::string& tokens, const std::string& flags = "") const {
    return run_program(folder, "convert --quiet " + model + " " + folder / "out" +
                                   " --add-tokens " + tokens + flags);
  }
  test::ScratchFolder folder;
  ModelSpec spec = test::small_spec();
  std::string model;
};

TEST(ConvertAdapters, places_are_named_by_flags_too) {
  const Converted f;
  const Outcome outcome =
      f.convert("--model " + f.options.model + " --out " + (f.folder / "named"));
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_TRUE(posix_files().exists(f.folder / "named/model.safetensors"));
}

TEST(AddTokens, rows_are_the_mean_and_those_left_over_come_first) {
  for (const bool tied : {false, true}) {
    for (const int n : {2, 6}) {
      const Padded f(tied);
      std::string lines;
      for (int i = 0; i < n; ++i) lines += fmt::format("<new {}>\n", i);
      const Outcome outcome = f.add(f.folder.put("new.txt", lines));
      ASSERT_EQ(outcome.code, 0) << outcome.err;
      ModelSpec spec = f.spec;
      spec.vocab = std::max<int64_t>(424, 420 + n);
      const ModelSource source = find_model_source(posix_files(), f.folder / "out");
      EXPECT_EQ(source.spec.vocab, spec.vocab);
      const WeightReader before(posix_files(), f.model, f.spec);
      const WeightReader after(posix_files(), f.folder / "out", spec);
      for (const std::string name : {"model.embed_tokens.weight", "lm_head.weight"}) {
        if (tied && name == "lm_head.weight") continue;
        const std::vector<float> was = before.read(name), is = after.read(name);
        for (size_t col = 0; col < 32; ++col) {
          double mean = 0;
          for (size_t row = 0; row < 420; ++row) {
            mean += static_cast<double>(was[row * 32 + col]) / 420;
            ASSERT_EQ(is[row * 32 + col], was[row * 32 + col]);
          }
          for (size_t row = 420; row < is.size() / 32; ++row) {
            const bool is_new = row < 420 + static_cast<size_t>(n);
            ASSERT_NEAR(is[row * 32 + col], is_new ? static_cast<float>(mean) : was[row * 32 + col],
                        1e-6f)
                << row;
          }
        }
      }
      const auto tokenizer = make_tokenizer(posix_files(), source.tokenizer);
      EXPECT_EQ(tokenizer->vocab_size(), 420 + n);
      EXPECT_EQ(tokenizer->encode("<new 1>"), std::vector<int32_t>{421});
    }
  }
}

TEST(AddTokens, say_in_lines_of_json_what_they_are) {
  const Padded f(true);
  const std::string tokens = f.folder.put(
      "new.jsonl",
      "{\"content\": \"<s1>\", \"special\": true}\n{\"content\": \"<w>\", \"lstrip\": true}\n");
  ASSERT_EQ(f.add(tokens).code, 0);
  const Json decoder = Json::parse(posix_files().read_text(f.folder / "out/tokenizer_config.json"))
                           .at("added_tokens_decoder");
  EXPECT_EQ(decoder.at("420").at("special"), true);
  EXPECT_EQ(decoder.at("420").at("normalized"), false);
  EXPECT_EQ(decoder.at("421").at("lstrip"), true);
  const Json added = Json::parse(posix_files().read_text(f.folder / "out/tokenizer.json"))
                         .at("added_tokens")
                         .back();
  EXPECT_EQ(added.at("id"), 421);
  EXPECT_EQ(added.at("special"), false);
}

TEST(AddTokens, what_cannot_be_added_is_refused_by_name) {
  const Padded f(true);
  const auto put = [&](const std::string& name, const std::string& text) {
    return f.folder.put(name, text);
  };
  const std::string good = put("good.txt", "<new>\n");
  const std::tuple<std::string, std::string, std::string> refused[] = {
      {put("a.txt", "<|end|>\n"), "", "'<|end|>', token 0"},
      {put("b.txt", "e\n"), "", "got 'e', token"},
      {put("c.txt", "x1\nx1\n"), "", "c.txt:2: expected each token once, got 'x1' again"},
      {put("d.txt", "\n"), "", "expected 1 to 65536 tokens, got 0"},
      {put("e.jsonl", "{\"content\": \"x\", \"id\": 3}\n"), "", "e.jsonl:1: expected known keys"},
      {put("f.txt", "\xff\n"), "", "f.txt:1: expected UTF-8"},
      {good, " --adapter-only", "--adapter-only"},
  };
  for (const auto& [tokens, flags, named] : refused) {
    const Outcome outcome = f.add(tokens, flags);
    EXPECT_NE(outcome.code, 0) << tokens;
    EXPECT_THAT(outcome.err, HasSubstr(named)) << tokens;
    EXPECT_FALSE(posix_files().exists(f.folder / "out"));
  }
  const Outcome file = run_program(
      f.folder, "convert " + f.model + " " + f.folder / "out.gguf" + " --add-tokens " + good);
  EXPECT_THAT(file.err, HasSubstr("--add-tokens"));
  const Fixture bytes;
  const Outcome none = run_program(f.folder, "convert " + bytes.options.model + " " +
                                                 f.folder / "out" + " --add-tokens " + good);
  EXPECT_THAT(none.err, HasSubstr("expected a model with a tokenizer.json, got 'bytes'"));
}

}  // namespace
}  // namespace octet::finetune_convert_test
