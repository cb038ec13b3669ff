// Model folders as the program meets them: hostile ones, and what memory a large one takes.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>

#include "cli/program_run.h"
#include "io/safetensors.h"
#include "nn/hf_config.h"
#include "nn/model.h"

namespace octet::program_model_folders_test {
namespace {

using test::run_program;
using test::ScratchFolder;

TEST(ModelFolder, a_word_of_a_megabyte_is_cut_in_the_message) {
  const ScratchFolder folder;
  folder.put("m/config.json", R"({"model_type": ")" + std::string(1 << 20, 'x') + "end\"}");
  const test::Outcome got = run_program(folder, "generate --model " + folder / "m");
  EXPECT_EQ(got.code, 3);
  EXPECT_LT(got.err.size(), 5000u);
  EXPECT_TRUE(got.err.ends_with("xxxend\"\n")) << got.err;
  EXPECT_NE(got.err.find("xxx ... ("), std::string::npos) << got.err;
}

TEST(ModelFolder, a_file_of_100000_tensors_is_refused_in_a_line_within_seconds) {
  const ScratchFolder folder;
  const ModelSpec spec =
      resolved({.hidden = 8, .layers = 1, .heads = 2, .ffn = 8, .vocab = 256, .norm_eps = 1e-5});
  folder.put("m/config.json", hf_config_text(spec));
  constexpr int kTensors = 100'000;
  const std::vector<std::byte> byte(1);
  std::vector<TensorSource> tensors;
  for (int i = 0; i < kTensors; ++i) {
    tensors.push_back(
        span_source(tensor_decl(fmt::format("model.layers.{}.w", i), Dtype::u8, {1}), byte));
  }
  write_atomically(posix_files(), folder / "m/model.safetensors",
                   [&](FileWriter& out) { write_safetensors(out, tensors); });
  const auto start = std::chrono::steady_clock::now();
  const test::Outcome got = run_program(folder, "generate --model " + folder / "m --prompt a");
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  EXPECT_EQ(got.code, 3);
  EXPECT_EQ(got.err, "octet: [weights] " + folder / "m" +
                         ": expected a tensor 'model.embed_tokens.weight', got none, but "
                         "'model.layers.0.w' (of 100000 that the model has not)\n");
  EXPECT_LT(took.count(), 20);  // 0.5 s where nothing else runs
}

// Peak resident bytes of the program, which must end well.
int64_t peak_of(const std::vector<std::string>& arguments) {
  const pid_t child = ::fork();
  if (child == 0) {
    const int nowhere = ::open("/dev/null", O_RDWR);
    for (int fd = 0; fd < 2; ++fd) ::dup2(nowhere, fd);
    std::vector<char*> words = {const_cast<char*>(OCTET_PROGRAM)};
    for (const std::string& word : arguments) words.push_back(const_cast<char*>(word.c_str()));
    words.push_back(nullptr);
    ::execv(OCTET_PROGRAM, words.data());
    ::_exit(127);
  }
  int status = 0;
  rusage usage{};
  EXPECT_EQ(::wait4(child, &status, 0, &usage), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << arguments[0];
  return int64_t{usage.ru_maxrss} << 10;
}

// A model of zeros whose file takes no room on the disk; its bytes.
int64_t put_large_model(const ScratchFolder& folder, const ModelSpec& spec) {
  folder.put("m/config.json", hf_config_text(spec));
  std::vector<TensorSource> tensors;
  int64_t n_bytes = 0;
  for (const ParameterSpec& p : model_parameters(spec)) {
    tensors.push_back({.decl = tensor_decl(p.name, Dtype::bf16, p.shape), .emit = {}});
    n_bytes += 2 * n_elems(p.shape);
  }
  const std::string path = folder / "m/model.safetensors";
  const auto out = posix_files().create(path);
  out->write(as_bytes(SafetensorsLayout(tensors).header));
  out->close();
  std::filesystem::resize_file(path,
                               std::filesystem::file_size(path) + static_cast<uint64_t>(n_bytes));
  return n_bytes;
}

TEST(ModelFolder, loading_takes_the_plans_memory_and_an_export_little) {
  constexpr int64_t kProcess = 64 << 20;  // code, libraries, threads, activations of 16 tokens
  const ScratchFolder folder;
  if (std::filesystem::space(folder.path()).available < uint64_t{1} << 30)
    GTEST_SKIP() << "takes 1 GiB of the disk";
  const ModelSpec spec = resolved(
      {.hidden = 1024, .layers = 6, .heads = 8, .ffn = 2816, .vocab = 8192, .norm_eps = 1e-5});
  const int64_t n_bytes = put_large_model(folder, spec);
  EXPECT_GT(n_bytes, 160 << 20);
  folder.put("text", std::string(64, 'a'));
  const int64_t largest = 2 * spec.vocab * spec.hidden;
  EXPECT_LE(
      peak_of({"eval", "--model", folder / "m", "--tokenizer", "bytes", "--data", folder / "text",
               "--recipe", "bf16", "--seq", "16", "--max-tokens", "16", "--threads", "2"}),
      n_bytes + largest * 12 / 10 + kProcess);
  EXPECT_LE(peak_of({"convert", folder / "m", folder / "out", "--dtype", "fp8-tensor"}), kProcess);
  // The layers' weights in 8 bits, and what the adapters' training takes beside them.
  const std::string set = "--set";
  EXPECT_LE(peak_of({"train",
                     "--model",
                     folder / "m",
                     "--data",
                     folder / "text",
                     "--out",
                     folder / "run",
                     "--threads",
                     "2",
                     set,
                     "recipe=coat",
                     set,
                     "lora.rank=1",
                     set,
                     "lora.base=e4m3",
                     set,
                     "data.tokenizer=bytes",
                     set,
                     "model.seq=16",
                     set,
                     "train.batch=1",
                     set,
                     "train.steps=1"}),
            n_bytes / 2 + largest + largest * 12 / 10 + kProcess);
  EXPECT_LE(peak_of({"convert", folder / "run", folder / "merged"}), kProcess);
}

}  // namespace
}  // namespace octet::program_model_folders_test
