// What `octet convert` makes of adapters by its flags, and which of them do not go together.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/finetune/small_model.h"
#include "cli/program_run.h"
#include "infer/export.h"
#include "infer/model_source.h"

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
      {gguf + out + adapter, "--adapter"},
      {gguf + out + " --merge", "--merge"},
      {gguf + out + " --adapter-only", "--adapter-only"},
      {gguf + out + " --fold-norms", "--fold-norms"},
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

}  // namespace
}  // namespace octet::finetune_convert_test
