// Checkpoints that several ranks write: the files of one.
#include "io/checkpoint_parts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/philox.h"
#include "io/checkpoint.h"
#include "unit/base/error_of.h"
#include "unit/base/faulty_files.h"
#include "unit/base/scratch_folder.h"

namespace octet::io_checkpoint_parts_test {
namespace {

using test::error_of;
using test::FaultyFiles;
using test::ScratchFolder;
using testing::HasSubstr;

struct Tensor {
  std::string name;
  Dtype dtype;
  std::vector<int64_t> shape;
  std::vector<std::byte> bytes;
};

std::vector<Tensor> tensors(const std::vector<std::pair<std::string, Dtype>>& names,
                            const std::vector<std::vector<int64_t>>& shapes) {
  std::vector<Tensor> all;
  for (size_t i = 0; i < names.size(); ++i) {
    const auto& [name, dtype] = names[i];
    Tensor tensor{.name = name, .dtype = dtype, .shape = shapes[i], .bytes = {}};
    const RandomStream random{.name = name_hash(name)};
    tensor.bytes.resize(tensor_decl(name, dtype, shapes[i]).n_bytes());
    for (size_t b = 0; b < tensor.bytes.size(); ++b)
      tensor.bytes[b] = static_cast<std::byte>(random.bits(b));
    all.push_back(std::move(tensor));
  }
  return all;
}

struct Rank {
  uint64_t rank = 0, ranks = 1;
};

// Cut anywhere: the last rank has what is left. In two pieces.
std::vector<TensorSource> sources(const std::vector<Tensor>& tensors, const Rank& rank) {
  std::vector<TensorSource> all;
  for (const Tensor& tensor : tensors) {
    const uint64_t n = tensor.bytes.size(), share = n / rank.ranks;
    const uint64_t first = rank.rank * share;
    const TensorPart part{first, rank.rank + 1 == rank.ranks ? n - first : share};
    const auto bytes = std::span(tensor.bytes).subspan(part.first, part.n_bytes);
    const auto emit = [bytes](const ByteSink& sink) {
      sink(bytes.first(bytes.size() / 3));
      sink(bytes.subspan(bytes.size() / 3));
    };
    all.push_back({tensor_decl(tensor.name, tensor.dtype, tensor.shape), emit, part});
  }
  return all;
}

class CheckpointParts : public testing::Test {
 protected:
  CheckpointContents contents(const Rank& rank) {
    CheckpointContents all;
    all.manifest.step = all.manifest.attempted = 7;
    all.model = sources(model_, rank);
    all.optim = sources(optim_, rank);
    all.model_metadata = {{"note", "of ranks"}};
    return all;
  }
  // By ranks in the order that `order` gives.
  std::string save(const std::string& run, Files& files, const std::vector<uint64_t>& order) {
    const uint64_t ranks = order.size();
    Checkpoints checkpoints(files, folder_ / run);
    std::string temporary;
    const std::string error = error_of(
        [&] {
          temporary = checkpoints.begin(7);
          std::vector<PartHashes> parts(order.size());
          for (const uint64_t rank : order) {
            const FileHeader header = rank == 0 ? FileHeader::yes : FileHeader::no;
            parts[rank] = checkpoints.write_part(temporary, contents({rank, ranks}), header);
          }
          checkpoints.complete(temporary, contents({0, ranks}), parts, {1});
        },
        folder_.path());
    if (error != "no error" && !temporary.empty()) checkpoints.abandon(temporary);
    return error;
  }
  std::string file(const std::string& run, const std::string& name) {
    return posix_files().read_text(folder_ / (run + "/step-000007/" + name));
  }

  const ScratchFolder folder_;
  const std::vector<Tensor> model_ =
      tensors({{"a", Dtype::bf16}, {"b", Dtype::e4m3}, {"c", Dtype::f32}, {"d", Dtype::hif8}},
              {{700, 3}, {5}, {256}, {4097}});
  const std::vector<Tensor> optim_ =
      tensors({{"empty", Dtype::f32}, {"one", Dtype::f32}, {"m", Dtype::u16}}, {{0}, {1}, {999}});
};

TEST_F(CheckpointParts, make_the_files_of_one_rank) {
  Checkpoints(posix_files(), folder_ / "one").save(contents({}), {1});
  for (const std::vector<uint64_t>& order :
       {std::vector<uint64_t>{0}, {1, 0}, {2, 0, 1}, {7, 3, 5, 1, 0, 2, 4, 6}}) {
    const std::string run = fmt::format("of{}", order.size());
    ASSERT_EQ(save(run, posix_files(), order), "no error");
    for (const char* name : {"model.safetensors", "optim.safetensors", "manifest.json"})
      EXPECT_TRUE(file(run, name) == file("one", name)) << run << " " << name;
    const auto loaded = Checkpoints(posix_files(), folder_ / run).newest();
    ASSERT_TRUE(loaded.has_value());
    EXPECT_EQ(loaded->model.read("d"), model_[3].bytes);
    EXPECT_EQ(loaded->model.metadata().at("note"), "of ranks");
  }
}

TEST_F(CheckpointParts, that_are_damaged_anywhere_are_not_loaded) {
  ASSERT_EQ(save("run", posix_files(), {0, 1, 2}), "no error");
  const std::string path = folder_ / "run/step-000007/model.safetensors";
  const std::string whole = posix_files().read_text(path);
  const Checkpoints checkpoints(posix_files(), folder_ / "run");
  for (size_t at = 300; at < whole.size(); at += 501) {
    std::string bytes = whole;
    bytes[at] = static_cast<char>(bytes[at] ^ 16);
    folder_.put("run/step-000007/model.safetensors", bytes);
    EXPECT_THAT(error_of([&] { checkpoints.load(folder_ / "run/step-000007"); }, folder_.path()),
                HasSubstr("[checkpoint] 'DIR/run/step-000007/model.safetensors': expected sum61 "));
  }
}

TEST_F(CheckpointParts, that_fail_leave_the_checkpoint_before_whole) {
  FaultyFiles files(posix_files());
  ASSERT_EQ(save("run", files, {0, 1}), "no error");
  const std::string before = file("run", "COMPLETE") + file("run", "model.safetensors");
  for (const char* operation :
       {"create directory", "create", "open", "write", "sync", "close", "rename"}) {
    for (int64_t at = 0;; ++at) {
      files.set({.at = at, .error = EIO, .only = operation});
      const std::string error = save("run", files, {0, 1});
      const bool has_failed = files.count() > at;
      files.set({});
      if (!has_failed) {
        EXPECT_GT(at, 0) << operation;
        EXPECT_EQ(error, "no error");
        break;
      }
      EXPECT_THAT(error, HasSubstr("[checkpoint] step 7 was not saved: [files] cannot "));
      EXPECT_THAT(error, HasSubstr("the newest whole checkpoint is 'DIR/run/step-000007"));
      EXPECT_TRUE(Checkpoints(posix_files(), folder_ / "run").newest().has_value());
    }
  }
  EXPECT_TRUE(file("run", "COMPLETE") + file("run", "model.safetensors") == before);
}

// A disk that loses half of a write and says nothing: by the size, or when it is read.
TEST_F(CheckpointParts, that_lost_bytes_are_no_checkpoint) {
  ASSERT_EQ(save("whole", posix_files(), {0, 1}), "no error");
  const auto tensor_bytes = [&](const std::string& run) {
    return file(run, "model.safetensors") + file(run, "optim.safetensors");
  };
  int n_found = 0;
  FaultyFiles files(posix_files());
  for (int64_t at = 0, n_writes = 1; n_writes > at; ++at) {
    files.set({.at = at, .mode = test::FaultMode::lose_half, .only = "write"});
    const std::string error = save("run", files, {0, 1});
    n_writes = files.count();
    if (error != "no error") continue;
    const bool is_whole = tensor_bytes("run") == tensor_bytes("whole");
    n_found += is_whole ? 0 : 1;
    const std::string loaded = error_of(
        [&] { Checkpoints(posix_files(), folder_ / "run").load(folder_ / "run/step-000007"); });
    EXPECT_EQ(loaded == "no error", is_whole) << at << " " << loaded;
  }
  EXPECT_GT(n_found, 5);
}

}  // namespace
}  // namespace octet::io_checkpoint_parts_test
