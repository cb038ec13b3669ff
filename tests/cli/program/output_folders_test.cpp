// Folders that the user names for results: what lies there and is not the command's stays.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "cli/program_run.h"

namespace octet::output_folders {
namespace {

using test::Outcome;
using test::run_program;
using test::ScratchFolder;
using testing::HasSubstr;
namespace fs = std::filesystem;

constexpr const char* kFormats = "study formats --samples 1000 --out ";

struct OutputFolders : testing::Test {
  Outcome run(const std::string& arguments) { return run_program(folder, arguments); }
  void refuses(const std::string& arguments, const std::string& what) {
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.code, 2) << arguments << "\n" << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr(what)) << arguments;
  }
  std::string text(const std::string& name) { return posix_files().read_text(folder / name); }
  std::string shards(const std::string& out) {
    return "tokenize --tokenizer bytes " + folder / "text.txt" + " --out " + folder / out;
  }
  OutputFolders() { folder.put("text.txt", "a text of some words\n"); }
  const ScratchFolder folder;
};

TEST_F(OutputFolders, tokenize_keeps_what_it_did_not_write) {
  for (const char* name : {"shard-00000.npy", "shard-00000.ends", "shard-00007.npy"}) {
    const std::string path = folder.put(std::string("tk/") + name, "precious");
    refuses(shards("tk"), "expected a name that is free, got '" + path + "'");
    EXPECT_EQ(text(std::string("tk/") + name), "precious");
    EXPECT_FALSE(posix_files().exists(folder / "tk/tokenize.json"));
    fs::remove(path);
  }
  folder.put("victim", "keep");
  for (const char* name : {"shard-00000.npy", "tokenize.json"}) {
    fs::create_symlink("../victim", folder / ("tk/" + std::string(name)));
    refuses(shards("tk"), name);
    EXPECT_EQ(text("victim"), "keep");
    fs::remove(folder / ("tk/" + std::string(name)));
  }
  EXPECT_EQ(run(shards("tk")).code, 0);
  EXPECT_EQ(run(shards("tk")).code, 0);  // again
}

TEST_F(OutputFolders, study_replaces_studies_alone) {
  const std::string out = folder / "st";
  for (const char* name : {"study.json", "formats.csv", "snr.svg"}) {
    folder.put(std::string("st/") + name, "precious");
    refuses(kFormats + out, name);
    EXPECT_EQ(text(std::string("st/") + name), "precious");
    fs::remove(folder / ("st/" + std::string(name)));
    folder.put("victim", "keep");
    fs::create_symlink("../victim", folder / ("st/" + std::string(name)));
    refuses(kFormats + out, name);
    EXPECT_EQ(text("victim"), "keep");
    fs::remove(folder / ("st/" + std::string(name)));
  }
  EXPECT_EQ(run(kFormats + out).code, 0);
  const std::string first = text("st/study.json");
  EXPECT_EQ(run(kFormats + out).code, 0);
  EXPECT_EQ(text("st/study.json"), first);
  // A study.json as it was before studies listed their files.
  auto json = nlohmann::ordered_json::parse(first);
  json.erase("files");
  folder.put("st/study.json", json.dump());
  EXPECT_EQ(run(kFormats + out).code, 0);
  folder.put("pages/index.html", "<!DOCTYPE html>\nmine");
  refuses("study report " + out + " --out " + folder / "pages", "index.html");
  EXPECT_EQ(run("study report " + out + " --out " + out).code, 0);
  EXPECT_EQ(run("study report " + out + " --out " + out).code, 0);
}

TEST_F(OutputFolders, of_models_and_runs_are_left_alone) {
  for (const char* name : {"config.json", "model.safetensors", "config.yaml"}) {
    folder.put(std::string("m/") + name, "{}");
    refuses(shards("m"), "which holds a model or a run");
    refuses(kFormats + folder / "m", "which holds a model or a run");
    fs::remove_all(folder / "m");
  }
}

TEST_F(OutputFolders, are_not_the_root_nor_above_the_current_one) {
  const fs::path before = fs::current_path();
  fs::create_directories(folder / "a/b");
  fs::current_path(folder / "a/b");
  fs::create_directory_symlink("../..", "up");
  folder.put("t.yaml",
             "model: {kind: llama, hidden: 32, layers: 1, heads: 2, ffn: 64, vocab: 256, seq: 16}\n"
             "data: {train: [" +
                 folder / "text.txt" +
                 "], tokenizer: bytes, val_fraction: 0}\n"
                 "train: {steps: 1, batch: 1}\n");
  for (const char* out : {"/", "..", "../..", "up", "../../a", "//", "/."}) {
    const std::string what = "which holds the current folder";
    refuses("train " + folder / "t.yaml" + " --quiet --set out=" + out, what);
    refuses("train " + folder / "t.yaml" + " --quiet --resume --set out=" + out, what);
    refuses("tokenize --tokenizer bytes " + folder / "text.txt" + " --out " + out, what);
    refuses(kFormats + std::string(out), what);
  }
  EXPECT_FALSE(fs::exists(folder / "config.yaml"));
  EXPECT_EQ(run("train " + folder / "t.yaml" + " --quiet --set out=.").code, 0);
  fs::current_path(before);
}

}  // namespace
}  // namespace octet::output_folders
