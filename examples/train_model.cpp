// Trains a small model of bytes on a text file, lets it write, and leaves a Hugging Face folder:
//
//   train_model TEXT FOLDER [KEY=VALUE...]      e.g. train_model book.txt runs/book train.steps=500
//
// Called again, it goes on where it stopped.
#include <octet/octet.h>

#include <cstdio>
#include <string>
#include <vector>

namespace {

constexpr const char* kConfig = R"(
model: {kind: llama, hidden: 64, layers: 2, heads: 4, ffn: 176, vocab: 256, seq: 64}
recipe: coat
optim: {lr: 3.0e-3, warmup: 20}
data: {tokenizer: bytes, val_fraction: 0.1}
train: {steps: 300, batch: 8, eval_every: 50, save_every: 100}
)";

// The last step done.
int64_t train(const octet::Machine& machine, const octet::TrainingConfig& config) {
  octet::Training training(machine, config, {.start = octet::TrainingStart::resume});
  while (const auto step = training.step()) {
    std::printf("step %lld of %lld  loss %.4f", static_cast<long long>(step->step),
                static_cast<long long>(step->steps), static_cast<double>(step->loss));
    if (step->val_loss) std::printf("  validation %.4f", *step->val_loss);
    std::printf("\n");
  }
  return training.steps_done();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: train_model TEXT FOLDER [KEY=VALUE...]\n");
    return 2;
  }
  const std::string text = argv[1], folder = argv[2];
  std::vector<std::string> sets = {"data.train=[" + text + "]", "out=" + folder};
  sets.insert(sets.end(), argv + 3, argv + argc);
  try {
    const octet::Machine machine;  // the CPU; {.device = "cuda"} is a GPU
    const int64_t step = train(machine, {.text = kConfig, .sets = sets});

    octet::Model model(machine, folder);
    const octet::GeneratedText written =
        model.generate("The ", {.max_tokens = 80, .temperature = 0.8, .top_k = 40});
    std::printf("%s%s\n", written.prompt.c_str(), written.text.c_str());

    const std::string target = folder + "/huggingface-" + std::to_string(step);
    const auto exported = octet::export_to(folder, target, {.dtype = "bf16"});
    std::printf("%lld tensors in %s\n", static_cast<long long>(exported.n_tensors), target.c_str());
  } catch (const octet::Error& error) {
    std::fprintf(stderr, "train_model: %s\n", error.what());
    return 1;
  }
  return 0;
}
