// Hints of the program for words that it does not know: the name that was meant, or nothing. The
// rows are what people type from habit.
#include <gtest/gtest.h>

#include <algorithm>

#include "cli/program_run.h"

namespace octet::test::program_hints_test {
namespace {

struct Mistake {
  std::string arguments;
  std::string hint;  // empty: none
};

void PrintTo(const Mistake& mistake, std::ostream* out) {
  *out << mistake.arguments;
}

const std::string kRun = "train " + std::string(OCTET_SOURCE_DIR) + "/recipes/llama-3m.yaml ";
const std::string kTrain = kRun + "--set ";
const std::string kEval = "eval --model " + std::string(OCTET_SOURCE_DIR) + "/recipes/demo/model ";

// Mistakes in a report of a newcomer's first hour.
const Mistake kFirstHour[] = {
    {kRun + "--wandb", ""},
    {kRun + "--lora 16", "--lora-rank"},
    {kTrain + "optim.learning_rate=1e-4", "optim.lr"},
    {kTrain + "lora.r=16", "lora.rank"},
    {kTrain + "recipe=fp8", "fp8_linear"},
    {kTrain + "recipe=int4", ""},
    {kTrain + "recipe=coatt", "coat"},
    {kTrain + "train.batchsize=8", "train.batch"},
    {kTrain + "optim.lr=fast", ""},
    {kTrain + "train.steps=1e9", ""},
    {kTrain + "model.kind=lama", "llama"},
    {"finetune --model m", "train --model DIR --data FILE"},
    {"merge runs/a", "convert"},
    {"quantize --model m", "ptq"},
    {kEval + "--tasks mmlu", ""},
    {kRun + "--device gpu", "cuda"},
    {kRun + "--device cuda:0", "cuda"},
    {"train " + std::string(OCTET_SOURCE_DIR) + "/recipes/lama-3m.yaml",
     std::string(OCTET_SOURCE_DIR) + "/recipes/llama-3m.yaml"},
    {"generate --model m --max-new-tokens 8", "--max-tokens"},
    {"generate --model m Once", "--prompt TEXT"},
    {"train lama-3m", "llama-3m"},
};

const Mistake kOthers[] = {
    // Keys.
    {kTrain + "lr=1", "optim.lr"},
    {kTrain + "batch_size=1", "train.batch"},
    {kTrain + "train.num_train_epochs=1", "train.epochs"},
    {kTrain + "train.gradient_accumulation_steps=1", "train.accumulate"},
    {kTrain + "train.eval_steps=1", "train.eval_every"},
    {kTrain + "optim.max_grad_norm=1", "optim.clip"},
    {kTrain + "optim.warmup_steps=1", "optim.warmup"},
    {kTrain + "optim=muon", "optim.kind"},
    {kTrain + "lora=16", "lora.rank"},
    {kTrain + "model.num_hidden_layers=2", "model.layers"},
    {kTrain + "model.hidden_size=2", "model.hidden"},
    {kTrain + "model.dropout=0", ""},
    {kTrain + "data.packing=true", "data.pack"},
    {kTrain + "train.eval_batch_size=1", ""},
    {kTrain + "precision=bf16", "recipe"},
    {kTrain + "trian.stpes=1", "train.steps"},
    {kTrain + "optim.gizmo=1", ""},
    // Values.
    {kTrain + "recipe=int8", ""},
    {kTrain + "recipe=bfloat16", "bf16"},
    {kTrain + "recipe=nvfp4", ""},
    {kTrain + "optim.kind=adam", "adamw"},
    {kTrain + "optim.kind=adamw_8bit", "adamw"},
    {kTrain + "optim.kind=lion", ""},
    {kTrain + "optim.state_m=fp8", "e4m3"},
    {kTrain + "optim.state_m=e3m4", ""},
    {kTrain + "optim.schedule=cosine_with_restarts", "cosine"},
    {kTrain + "model.kind=mixtral", ""},
    {kTrain + "model.kind=llama3", "llama"},
    {"ptq --model m --calib c --out o --method max --format fp8", "e4m3"},
    {"convert a b --dtype fp16", "f16"},
    {"convert a b --dtype fp8", "fp8-block"},
    {"compare --recipes bf16,fp8 --steps 1 --out x", "fp8_linear"},
    // Flags.
    {kRun + "--eval-steps 10", "--set train.eval_every=VALUE"},
    {kRun + "--weight_decay 0", "--set optim.weight_decay=VALUE"},
    {kRun + "--output-dir x", "--out"},
    {kRun + "--prompt a", ""},
    {kRun + "--fp16", "--recipe"},
    {"generate --model m --temp 1", "--temperature"},
    {kEval + "--num_fewshot 5", "--shots"},
    {"serve --model m --ctx-size 128", "--context"},
    // Commands.
    {"sft", "train --model DIR --data FILE"},
    {"evaluate", "eval"},
    {"infer", "generate"},
    {"server", "serve"},
    {"export", "convert"},
    {"dpo", ""},
    {"login", ""},
    {"docs config", "configuration"},
    // Tasks.
    {kEval + "--tasks hellasvag", "hellaswag"},
    {kEval + "--tasks cola", ""},
    {kEval + "--tasks ppl", "perplexity"},
    // Files and recipes' names.
    {"train llama-3b", ""},
    {"train llama-7b", "llama-2-7b"},
    {"plan gpt2", "gpt2-124m"},
    {"plan nothing.yaml", ""},
    {"plan " + std::string(OCTET_SOURCE_DIR) + "/recipes/none.yaml", ""},
};

// Habits from transformers' Trainer, axolotl, torchtune, llama.cpp, vLLM and lm-eval.
const Mistake kHabits[] = {
    {kRun + "--num_processes 2", "--ranks"},
    {kRun + "--label_smoothing_factor 0.1", "--set train.label_smoothing=VALUE"},
    {kTrain + "group_by_length=true", "data.buckets"},
    {kRun + "--logging_dir x", "--set train.tensorboard=VALUE"},
    {kRun + "--torch_compile", ""},
    {kRun + "--push_to_hub", ""},
    {kRun + "--tensor_parallel_size 2", ""},
    {kRun + "-c x.yaml", "CONFIG without a flag"},
    {kTrain + "compile=true", ""},
    {kTrain + "train.compile=true", ""},
    {kTrain + "train.bf16=true", "recipe"},
    {kTrain + "lora.qlora=true", ""},
    {kTrain + "lora.use_dora=true", "lora.kind"},
    {kTrain + "lora.modules=[q_proj]", "lora.targets"},
    {kTrain + "lora.modules_to_save=[lm_head]", "lora.save"},
    {kTrain + "lora.init=gaussian", ""},
    {kTrain + "lora.bias=none", ""},
    {kTrain + "parallel.tensor=2", ""},
    {kTrain + "parallel.dp=2", "parallel.ranks"},
    {kTrain + "dataset.packed=true", "data.pack"},
    {kTrain + "val_set_size=0.1", "data.val_fraction"},
    {kTrain + "optim.state=8bit", "optim.state_m"},
    {kTrain + "optim.schedule=linear_with_warmup", "linear"},
    {kTrain + "model.activation=silu", "swish"},
    {kTrain + "recipe=tensorwise", "fp8_linear"},
    {kTrain + "recipe=rowwise", "fp8_row"},
    {kTrain + "recipe=MXFP8BlockScaling", "mxfp8"},
    {"plan x.yaml --memory 24GB", "--device-memory"},
    {"generate -m m -p hi", "--model"},
    {"generate --model m -n 5", "--max-tokens"},
    {"generate --model m --max_length 9", "--context"},
    {"serve m", "--model m"},
    {"serve --model m --max-num-seqs 8", "--batch"},
    {"serve --model m --lora-modules a", "--adapter"},
    {"serve --model m --n-gpu-layers 9", ""},
    {"convert m o --outtype q8_0", "--dtype"},
    {"convert m --outfile o", "--out"},
    {"convert m o --dtype q4_k_m", ""},
    {"tokenizer train", "tokenize"},
    {"download org/name", ""},
};

class Hints : public testing::TestWithParam<Mistake> {};

// The names that the line gives as near; empty where it gives none.
std::string hint_of(const std::string& line) {
  for (const std::string_view mark : {"the nearest is ", "nearest known key is ", "key is "}) {
    const size_t at = line.find(mark);
    if (at == std::string::npos) continue;
    const std::string rest = line.substr(at + mark.size());
    return rest.substr(0, std::min(rest.find(" ("), rest.find('\n')));
  }
  return "";
}

TEST(SetFlag, without_a_value_is_told_how_it_is_written) {
  const ScratchFolder folder;
  EXPECT_EQ(run_program(folder, kRun + "--set optim.lr 1e-3").err,
            "octet: --set: expected KEY=VALUE in one word, as optim.lr=1e-3, got 'optim.lr' (see "
            "octet train --help)\n");
}

TEST_P(Hints, name_what_was_meant_or_nothing) {
  const ScratchFolder folder;
  const Outcome outcome = run_program(folder, GetParam().arguments);
  EXPECT_TRUE(outcome.code == 2 || outcome.code == 3) << outcome.code << " " << outcome.err;
  const std::string last = outcome.err.substr(outcome.err.rfind("octet: "));
  EXPECT_EQ(std::count(last.begin(), last.end(), '\n'), 1) << last;
  EXPECT_EQ(hint_of(last), GetParam().hint) << last;
}

INSTANTIATE_TEST_SUITE_P(first_hour, Hints, testing::ValuesIn(kFirstHour));
INSTANTIATE_TEST_SUITE_P(habits, Hints, testing::ValuesIn(kHabits));
INSTANTIATE_TEST_SUITE_P(others, Hints, testing::ValuesIn(kOthers));

}  // namespace
}  // namespace octet::test::program_hints_test
