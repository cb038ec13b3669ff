// An encoder that was trained for one thing begins another: a model's folder with model.head.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/encoders/encoder_run.h"
#include "io/safetensors.h"

namespace octet::encoders_new_head_test {
namespace {

using test::Outcome;
using test::run_program;
using test::ScratchFolder;
using test::train_encoder;
using testing::HasSubstr;
using testing::Not;

const std::string kTokenizer =
    std::string(OCTET_SOURCE_DIR) + "/tests/fixtures/word_pieces/uncased.json";

std::string text_of(int n) {
  const char* words[] = {"the", "model", "runs", "a", "scale", "of", "group", "token"};
  std::string text;
  for (int i = 0; i < n; ++i) text += std::string(words[i * i % 11 % 8]) + " ";
  return text;
}

std::string classes_of(int n, int n_classes) {
  std::string lines;
  for (int i = 0; i < n; ++i) {
    lines += fmt::format("{{\"text\": \"the {} runs\", \"label\": {}}}\n",
                         i % 2 == 0 ? "model" : "scale", i % n_classes);
  }
  return lines;
}

// The folder of a BERT that has seen hidden tokens for a step.
std::string pretrained(const ScratchFolder& folder, const std::string& kind = "bert") {
  const std::string yaml =
      test::encoder_yaml(folder, ", head: masked, seq: 24",
                         ", val_fraction: 0.2, train: [" + folder.put("t.txt", text_of(900)) + "]");
  Outcome outcome = train_encoder(
      folder, yaml,
      "--set train.steps=1 --set model.kind=" + kind + " --set out=" + (folder / "first"));
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  outcome = run_program(folder, "convert --quiet " + (folder / "first") + " " + (folder / "base"));
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  return folder / "base";
}

std::string tuned_yaml(const ScratchFolder& folder, const std::string& base,
                       const std::string& head, const std::string& data) {
  return "model: {path: " + base + ", seq: 24, " + head +
         "}\nrecipe: fp32\noptim: {lr: 4.0e-3, warmup: 4}\ndata: {tokenizer: " + kTokenizer +
         ", val_fraction: 0.2, train: [" + data +
         "]}\ntrain: {steps: 40, batch: 8, eval_every: 20, save_every: 0, keep: 9}\nout: " +
         (folder / "run") + "\n";
}

std::vector<std::byte> tensor_of(const std::string& model, const std::string& name) {
  const auto file = SafetensorsReader::open(posix_files(), model + "/model.safetensors");
  return file.read(name);
}

TEST(NewHead, a_pretrained_encoder_learns_classes) {
  const ScratchFolder folder;
  const std::string base = pretrained(folder);
  const std::string yaml = tuned_yaml(folder, base, "head: classes, classes: 2",
                                      folder.put("c.jsonl", classes_of(200, 2)));
  const Outcome outcome = run_program(folder, "train " + folder.put("encoder.yaml", yaml));
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.err,
              HasSubstr("begin anew: bert.pooler.dense.bias, "
                        "bert.pooler.dense.weight, classifier.bias, classifier.weight"));
  EXPECT_EQ(test::metrics(folder / "run").back().at("val_accuracy").get<double>(), 1);
  ASSERT_EQ(
      run_program(folder, "convert --quiet " + (folder / "run") + " " + (folder / "out")).code, 0);
  const auto config = nlohmann::json::parse(posix_files().read_text(folder / "out/config.json"));
  EXPECT_EQ(config.at("architectures"), nlohmann::json({"BertForSequenceClassification"}));
  const auto loss = [&](const std::string& model, const std::string& flags) {
    const Outcome eval = run_program(
        folder, "eval --json --quiet --model " + model + " --data " + (folder / "c.jsonl") + flags);
    EXPECT_EQ(eval.code, 0) << eval.err;
    return nlohmann::json::parse(eval.out).at(0).at("cross_entropy").get<double>();
  };
  EXPECT_EQ(loss(folder / "out", " --seq 24"), loss(folder / "run", ""));
}

// All parts but the head, and nothing else, come from the folder, and so do a classifier's classes
// where they are as many.
TEST(NewHead, the_body_is_that_of_the_folder) {
  const ScratchFolder folder;
  const std::string base = pretrained(folder);
  const auto tuned = [&](const std::string& from, const std::string& head, int n_classes,
                         const std::string& out) {
    const std::string yaml =
        tuned_yaml(folder, from, head, folder.put("c.jsonl", classes_of(60, n_classes)));
    const Outcome outcome = train_encoder(
        folder, yaml,
        "--set train.steps=1 --set train.freeze=[bert.e*,bert.p*,classifier.weight] --set out=" +
            (folder / out + "_run"));
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    const std::string to = folder / out;
    EXPECT_EQ(run_program(folder, "convert --quiet " + to + "_run " + to).code, 0);
    return to;
  };
  const std::string two = tuned(base, "head: classes", 2, "two");
  const std::string query = "bert.encoder.layer.1.attention.self.query.weight";
  EXPECT_EQ(tensor_of(two, query), tensor_of(base, query));
  const std::string same = tuned(two, "head: classes", 2, "same"),
                    three = tuned(two, "head: classes, classes: 3", 3, "three"),
                    value = tuned(two, "head: value", 2, "value");
  const std::string last = "classifier.weight", pooler = "bert.pooler.dense.weight";
  EXPECT_EQ(tensor_of(same, last), tensor_of(two, last));
  EXPECT_EQ(tensor_of(three, last).size(), 3u * 32 * 4);
  EXPECT_EQ(tensor_of(value, last).size(), 1u * 32 * 4);
  EXPECT_EQ(tensor_of(three, pooler), tensor_of(two, pooler));
}

TEST(NewHead, runs_that_go_on_come_to_the_bits_of_those_that_were_not_stopped) {
  const ScratchFolder folder;
  const std::string base = pretrained(folder);
  test::expect_same_bits_resumed(
      folder, tuned_yaml(folder, base, "head: classes", folder.put("c.jsonl", classes_of(40, 2))));
}

TEST(NewHead, each_kind_takes_each_of_its_heads) {
  for (const std::string kind : {"bert", "roberta", "distilbert"}) {
    const ScratchFolder folder;
    const std::string base = pretrained(folder, kind);
    const std::string squad = folder.put(
        "q.json",
        R"({"data":[{"paragraphs":[{"context":"the model runs","qas":[)"
        R"({"id":"0","question":"what runs","answers":[{"text":"model","answer_start":4}]},)"
        R"({"id":"1","question":"what","answers":[{"text":"runs","answer_start":10}]}]}]}]})");
    const std::string pairs =
        folder.put("p.tsv",
                   "anchor\tpositive\tlabel\nthe model\tthe run\t0.5\nthe scale\tthe group\t1\n"
                   "a token\tthe token\t0\nthe run\ta scale\t1\nof it\tof the model\t0\n");
    for (const auto& [head, data] : {std::pair<std::string, std::string>{"span", squad},
                                     {"value", pairs},
                                     {"embeddings", pairs},
                                     {"masked", folder / "t.txt"}}) {
      const std::string fields = head == "embeddings" ? " --set data.fields.label=none" : "";
      const Outcome outcome = train_encoder(
          folder, tuned_yaml(folder, base, "head: " + head, data),
          "--set train.steps=1 --set train.batch=4 --set out=" + (folder / head) + fields);
      EXPECT_EQ(outcome.code, 0) << kind << " " << head << ": " << outcome.err;
    }
  }
}

TEST(NewHead, what_has_no_such_head_is_refused) {
  const ScratchFolder folder;
  const std::string base = pretrained(folder);
  const std::string data = folder.put("c.jsonl", classes_of(20, 2));
  const auto error = [&](const std::string& head, const std::string& sets = "") {
    const Outcome outcome = train_encoder(folder, tuned_yaml(folder, base, head, data), sets);
    EXPECT_EQ(outcome.code, 2) << outcome.err;
    return outcome.err;
  };
  EXPECT_THAT(
      error("classes: 3"),
      HasSubstr("model.classes: expected model.head: classes or multi_label beside model.path, "
                "got 3"));
  EXPECT_THAT(error("head: span, hidden: 8"),
              HasSubstr("model.hidden: expected no shape key beside model.path, got 8"));
  EXPECT_THAT(error("allow_nonfinite: false", "--set train.loss=classes"),
              HasSubstr("which bert has not with this head (model.head: classes)"));
  EXPECT_THAT(
      error("head: embeddings", "--set train.batch=5 --set data.train=[" +
                                    folder.put("p.tsv", "anchor\tpositive\na\tb\na\tb\n") + "]"),
      HasSubstr("train.batch: expected a multiple of 2, the rows of a sample, got 5"));
}

// Without a configuration file rows are as long as the data need, which a run that goes on finds
// again: 5 tokens are 16, of which the model knows 24; 17 are all of them.
TEST(NewHead, rows_are_as_long_as_the_longest_text) {
  const ScratchFolder folder;
  const std::string base = pretrained(folder);
  const auto train = [&](const std::string& out, const std::string& data, const std::string& more) {
    return run_program(folder, "train --model " + base + " --data " + data + " --out " +
                                   (folder / out) +
                                   " --recipe fp32 --set model.head=classes --set "
                                   "train.epochs=0 --set optim.schedule=constant " +
                                   more);
  };
  const std::string texts = folder.put("c.jsonl", classes_of(200, 2));
  for (const char* more : {"--set train.steps=4", "--resume --set train.steps=9"}) {
    const Outcome outcome = train("parts", texts, more);
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("rows of 16 tokens"));
  }
  ASSERT_EQ(train("whole", texts, "--set train.steps=9").code, 0);
  EXPECT_EQ(test::loss_bits(folder / "parts"), test::loss_bits(folder / "whole"));
  EXPECT_THAT(posix_files().read_text(folder / "whole" + "/config.yaml"), HasSubstr("seq: 16"));
  const std::string longer = folder.put(
      "l.jsonl", classes_of(200, 2) + "{\"text\": \"" + text_of(15) + "\", \"label\": 1}\n");
  EXPECT_THAT(train("longer", longer, "--set train.steps=1").err, HasSubstr("rows of 24 tokens"));
  EXPECT_THAT(train("asked", texts, "--set train.steps=1 --set model.seq=20").err,
              HasSubstr("rows of 20 tokens"));
  const auto eval_errors = [&](const std::string& data) {
    return run_program(folder, "eval --model " + (folder / "whole") + " --data " + data).err;
  };
  EXPECT_THAT(eval_errors(longer),
              HasSubstr("[data] 1 of 201 samples lost the ends of their texts: "
                        "rows have 16 tokens"));
  EXPECT_THAT(eval_errors(texts), Not(HasSubstr("lost the ends")));
}

// Folders of pictures are classes: in the order of their names, or as the model numbers them.
TEST(NewHead, pictures_have_the_numbers_that_the_model_has_for_the_names_of_their_folders) {
  const ScratchFolder folder;
  const auto picture = [](const std::string& name) {
    return posix_files().read_text(std::string(OCTET_SOURCE_DIR) + "/tests/fixtures/images/" +
                                   name);
  };
  for (int i = 0; i < 6; ++i) {
    folder.put(fmt::format("all/ant/{}.png", i), picture("rgb.png"));
    folder.put(fmt::format("all/bee/{}.png", i), picture("gray.png"));
    folder.put(fmt::format("bees/bee/{}.png", i), picture("gray.png"));
  }
  const std::string yaml =
      "model: {kind: vit, hidden: 16, layers: 1, heads: 2, ffn: 32, image_size: 8, patch_size: 4}\n"
      "recipe: fp32\noptim: {lr: 4.0e-3, warmup: 4}\ndata: {val_fraction: 0, train: [" +
      (folder / "all") + "]}\ntrain: {steps: 40, batch: 4}\nout: " + (folder / "run") + "\n";
  Outcome outcome = train_encoder(folder, yaml);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const std::string out = folder / "out";
  ASSERT_EQ(run_program(folder, "convert --quiet " + (folder / "run") + " " + out).code, 0);
  auto config = nlohmann::json::parse(posix_files().read_text(out + "/config.json"));
  EXPECT_EQ(config.at("id2label"), nlohmann::json({{"0", "ant"}, {"1", "bee"}}));
  const auto weights = SafetensorsReader::open(posix_files(), out + "/model.safetensors");
  const auto shape = [&](const std::string& name) {
    return weights.find("vit.embeddings." + name)->shape;
  };
  EXPECT_EQ(shape("patch_embeddings.projection.weight"), (Shape{16, 3, 4, 4}));
  EXPECT_EQ(shape("position_embeddings"), (Shape{1, 5, 16}));
  EXPECT_EQ(shape("cls_token"), (Shape{1, 1, 16}));
  const auto processor =
      nlohmann::json::parse(posix_files().read_text(out + "/preprocessor_config.json"));
  EXPECT_EQ(processor.at("size"), nlohmann::json({{"shortest_edge", 8}}));
  const auto accuracy = [&](const std::string& data) {
    outcome =
        run_program(folder, "eval --json --quiet --model " + out + " --data " + (folder / data));
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return nlohmann::json::parse(outcome.out).at(0).at("acc").get<double>();
  };
  EXPECT_EQ(accuracy("all"), 1);
  EXPECT_EQ(accuracy("bees"), 1);
  config["id2label"] = {{"0", "bee"}, {"1", "ant"}};
  config["label2id"] = {{"bee", 0}, {"ant", 1}};
  folder.put("out/config.json", config.dump());
  EXPECT_EQ(accuracy("all"), 0);
  folder.put("out/preprocessor_config.json",
             R"({"size": {"height": 8, "width": 8}, "resample": 1})");
  EXPECT_THAT(run_program(folder, "eval --model " + out + " --data " + (folder / "all")).err,
              HasSubstr("'resample': expected 2 (bilinear) or 3 (bicubic), got 1"));
  folder.put("out/preprocessor_config.json",
             R"({"size": {"height": 8, "width": 8}, "resample": 3})");
  const auto warned = [&](const std::string& sets) {
    const std::string tuned = "model: {path: " + out + "}\ndata: {val_fraction: 0, train: [" +
                              (folder / "all") +
                              "]}\ntrain: {steps: 1, batch: 4}\nout: " + (folder / "tuned") + "\n";
    return train_encoder(folder, tuned, "--overwrite " + sets).err;
  };
  EXPECT_THAT(warned("--set data.images.stretch=false --set data.images.filter=bilinear"),
              HasSubstr("0.5], size 8, stretch true, filter bicubic; this run has mean [0.5, 0.5, "
                        "0.5], std [0.5, 0.5, 0.5], size 8, stretch false, filter bilinear"));
  // What nobody says is as the folder has it.
  EXPECT_THAT(warned("--set data.images.flip=true"), Not(HasSubstr("this run has")));
  EXPECT_THAT(posix_files().read_text(folder / "tuned/config.yaml"), HasSubstr("filter: bicubic"));
  folder.put("out/preprocessor_config.json", R"({"size": {"height": 8, "width": 9}})");
  outcome = run_program(folder, "eval --model " + out + " --data " + (folder / "all"));
  EXPECT_THAT(outcome.err, HasSubstr("'size': expected as much height as width"));
}

TEST(NewHead, classes_of_pictures_that_a_model_does_not_know_are_errors_that_name_them) {
  const ScratchFolder folder;
  const std::string picture =
      posix_files().read_text(OCTET_SOURCE_DIR "/tests/fixtures/images/gray.png");
  for (const char* name : {"two/ant", "two/bee", "more/ant", "more/bee", "more/cat", "one/bee"})
    folder.put(std::string(name) + "/1.png", picture);
  const auto train = [&](const std::string& model, const std::string& data, const std::string& out,
                         const std::string& sets = "") {
    const std::string yaml = "model: {" + model + "}\nrecipe: fp32\ndata: {val_fraction: 0, " +
                             data + "}\ntrain: {steps: 1, batch: 2}\nout: " + (folder / out) + "\n";
    return train_encoder(folder, yaml, sets);
  };
  const auto trains = [&](const std::string& name) { return "train: [" + (folder / name) + "]"; };
  const std::string vit =
      "kind: vit, hidden: 8, layers: 1, heads: 2, ffn: 8, image_size: 8, patch_size: 4, classes: ";
  // A part of the classes is numbered by the names of all; others are refused.
  Outcome outcome = train(vit + "2", trains("two") + ", val: [" + (folder / "one") + "]", "run");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  outcome = train(vit + "3", trains("one") + ", val: [" + (folder / "two") + "]", "val");
  EXPECT_EQ(outcome.code, 3);
  EXPECT_THAT(outcome.err, HasSubstr("two': expected classes of bee, got ant"));
  // A run knows the classes that it was trained for.
  outcome =
      run_program(folder, "eval --model " + (folder / "run") + " --data " + (folder / "more"));
  EXPECT_EQ(outcome.code, 3);
  EXPECT_THAT(outcome.err, HasSubstr("(ant, bee), got cat"));
  // So does a folder; a new head has its own.
  ASSERT_EQ(
      run_program(folder, "convert --quiet " + (folder / "run") + " " + (folder / "out")).code, 0);
  const std::string tuned = "path: " + (folder / "out");
  outcome = train(tuned, trains("more"), "tuned");
  EXPECT_EQ(outcome.code, 3);
  EXPECT_THAT(outcome.err, HasSubstr("(ant, bee), got cat; model.head: classes asks"));
  outcome = train(tuned + ", head: classes, classes: 3", trains("more"), "tuned");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
}

// PEFT finds the modules in the class that the base's config.json names, and asks no encoder for
// what models that write text have.
TEST(NewHead, adapters_stand_where_peft_looks_for_them) {
  const ScratchFolder folder;
  const std::string base = pretrained(folder);
  const std::string pairs =
      folder.put("p.tsv", "anchor\tpositive\na\tthe\nmodel\tscale\nruns\tgroup\nof\tit\n");
  const auto adapter = [&](const std::string& head, const std::string& data) {
    const Outcome outcome =
        train_encoder(folder, tuned_yaml(folder, base, "head: " + head, data),
                      "--set train.steps=1 --set train.batch=4 --set lora.rank=2 --set "
                      "'lora.targets=[\"*.query\",\"*.dense\"]' --set "
                      "'lora.save=[\"*.embeddings.LayerNorm\"]' --set out=" +
                          (folder / head));
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    const std::string to = folder / (head + "_adapter");
    EXPECT_EQ(
        run_program(folder, "convert --quiet --adapter-only " + (folder / head) + " " + to).code,
        0);
    return to;
  };
  for (const auto& [head, data, prefix] :
       {std::tuple<std::string, std::string, std::string>{"masked", folder / "t.txt", "bert."},
        {"embeddings", pairs, ""}}) {
    const std::string to = adapter(head, data);
    const auto config = nlohmann::json::parse(posix_files().read_text(to + "/adapter_config.json"));
    EXPECT_TRUE(config.at("task_type").is_null());
    const auto modules = config.at("target_modules").get<std::vector<std::string>>();
    EXPECT_EQ(modules.size(), 8u);
    EXPECT_EQ(std::ranges::count(modules, prefix + "encoder.layer.0.output.dense"), 1);
    EXPECT_EQ(config.at("modules_to_save"),
              nlohmann::json::array({prefix + "embeddings.LayerNorm"}));
    const auto file = SafetensorsReader::open(posix_files(), to + "/adapter_model.safetensors");
    EXPECT_NE(file.find("base_model.model." + prefix +
                        "encoder.layer.1.attention.self.query.lora_A.weight"),
              nullptr);
  }
}

// The head is trained whole beside the adapters, goes with them where PEFT looks for it, and is
// merged with the base's body.
TEST(NewHead, adapters_take_a_new_head_with_them) {
  const ScratchFolder folder;
  const std::string base = pretrained(folder), run = folder / "run", out = folder / "out";
  const std::string yaml = tuned_yaml(folder, base, "head: classes, classes: 2",
                                      folder.put("c.jsonl", classes_of(200, 2)));
  const std::string lora = " --set lora.rank=2 --set lora.base=";
  for (const std::string format : {"bf16", "e4m3"}) {
    const Outcome outcome = train_encoder(folder, yaml, "--overwrite" + lora + format);
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_EQ(test::metrics(run).back().at("val_accuracy").get<double>(), 1) << format;
  }
  test::expect_same_bits_resumed(folder, yaml, lora + "e4m3 ");
  ASSERT_EQ(run_program(folder, "convert --quiet --adapter-only " + run + " " + out).code, 0);
  const auto config = nlohmann::json::parse(posix_files().read_text(out + "/adapter_config.json"));
  EXPECT_EQ(config.at("modules_to_save"), nlohmann::json({"bert.pooler.dense", "classifier"}));
  const auto adapters = SafetensorsReader::open(posix_files(), out + "/adapter_model.safetensors");
  const std::string merged = folder / "merged";
  ASSERT_EQ(run_program(folder, "convert --quiet --dtype f32 " + run + " " + merged).code, 0);
  for (const std::string name : {"classifier.weight", "bert.pooler.dense.bias"})
    EXPECT_EQ(adapters.read("base_model.model." + name), tensor_of(merged, name)) << name;
  const auto loss = [&](const std::string& model) {
    const Outcome eval = run_program(folder, "eval --json --quiet --recipe fp32 --seq 24 --model " +
                                                 model + " --data " + (folder / "c.jsonl"));
    EXPECT_EQ(eval.code, 0) << eval.err;
    return nlohmann::json::parse(eval.out).at(0).at("cross_entropy").get<double>();
  };
  EXPECT_LT(loss(run), 0.3);
  EXPECT_EQ(loss(merged), loss(run));
}

// A masked head that the folder lacks is trained whole beside adapters; one that it has stays as it
// is. PEFT has no form for the first.
TEST(NewHead, adapters_take_a_masked_head_that_begins_anew_with_them) {
  const ScratchFolder folder;
  const std::string base = pretrained(folder), run = folder / "run", out = folder / "out";
  const std::string lora = " --set lora.rank=2 --set train.steps=3 --set train.eval_every=0 ";
  const std::string classes = tuned_yaml(folder, base, "head: classes, classes: 2",
                                         folder.put("c.jsonl", classes_of(40, 2)));
  ASSERT_EQ(train_encoder(folder, classes, lora).code, 0);
  const std::string merged = folder / "merged";
  ASSERT_EQ(run_program(folder, "convert --quiet --dtype f32 " + run + " " + merged).code, 0);
  const auto train = [&](const std::string& from, const std::string& more = "") {
    return train_encoder(folder, tuned_yaml(folder, from, "head: masked", folder / "t.txt"),
                         "--overwrite" + lora + more);
  };
  const auto alone = [&] {
    return run_program(folder, "convert --quiet --adapter-only " + run + " " + out);
  };
  ASSERT_EQ(train(base).code, 0);
  ASSERT_EQ(alone().code, 0);
  const auto config = nlohmann::json::parse(posix_files().read_text(out + "/adapter_config.json"));
  EXPECT_EQ(config.at("modules_to_save"), nlohmann::json());
  EXPECT_THAT(train(merged, "--set train.export=adapter").err,
              HasSubstr("train.export: expected a model where model.head: masked begins anew"));
  const Outcome fresh = train(merged);
  ASSERT_EQ(fresh.code, 0) << fresh.err;
  EXPECT_THAT(alone().err, HasSubstr("expected no masked head that is trained whole"));
  const std::string whole = folder / "whole", name = "cls.predictions.transform.dense.";
  ASSERT_EQ(run_program(folder, "convert --quiet --dtype f32 " + run + " " + whole).code, 0);
  EXPECT_NE(tensor_of(whole, name + "bias"), std::vector<std::byte>(32 * 4));
  EXPECT_NE(tensor_of(whole, name + "weight"), tensor_of(base, name + "weight"));
}

// train.freeze beside adapters: of a stored part of the head, which stays, and of one that begins
// anew, which no file would hold.
TEST(NewHead, a_frozen_part_stays_beside_adapters) {
  const ScratchFolder folder;
  const std::string base = pretrained(folder), run = folder / "run";
  const auto tuned = [&](const std::string& from, int n_classes, const std::string& freeze) {
    const std::string yaml =
        tuned_yaml(folder, from, fmt::format("head: classes, classes: {}", n_classes),
                   folder.put("c.jsonl", classes_of(60, n_classes)));
    return train_encoder(folder, yaml,
                         "--overwrite --set lora.rank=2 --set train.steps=2 --set "
                         "train.eval_every=0 --set train.freeze=" +
                             freeze);
  };
  const Outcome fresh = tuned(base, 2, "[classifier.weight]");
  EXPECT_EQ(fresh.code, 2);
  EXPECT_THAT(fresh.err, HasSubstr("train.freeze: expected no pattern of what begins anew"));
  ASSERT_EQ(tuned(base, 2, "[bert.embeddings.*]").code, 0);
  const std::string two = folder / "two", three = folder / "three";
  ASSERT_EQ(run_program(folder, "convert --quiet --dtype f32 " + run + " " + two).code, 0);
  const Outcome stored = tuned(two, 3, "[\"bert.pooler.*\",\"bert.encoder.layer.0.*\"]");
  ASSERT_EQ(stored.code, 0) << stored.err;
  ASSERT_EQ(run_program(folder, "convert --quiet --dtype f32 " + run + " " + three).code, 0);
  for (const std::string name :
       {"bert.pooler.dense.weight", "bert.encoder.layer.0.attention.self.query.weight"})
    EXPECT_EQ(tensor_of(three, name), tensor_of(two, name)) << name;
  const std::string last = "bert.encoder.layer.1.attention.self.query.weight";
  EXPECT_NE(tensor_of(three, last), tensor_of(two, last));
}

// Without a configuration file, rows are those of the model's loss, and no longer than it can read.
TEST(NewHead, an_encoder_is_fine_tuned_without_a_file) {
  for (const std::string kind : {"bert", "roberta"}) {
    const ScratchFolder folder;
    const std::string base = pretrained(folder, kind);
    const std::string data = folder.put("c.jsonl", classes_of(40, 2));
    const auto train = [&](const std::string& file, const std::string& sets) {
      const Outcome outcome =
          run_program(folder, "train --quiet --overwrite --model " + base + " --data " + file +
                                  " --set train.epochs=1 --out " + (folder / "tuned") + sets);
      EXPECT_EQ(outcome.code, 0) << outcome.err;
    };
    train(data, " --set model.head=classes");
    train(folder / "t.txt", "");
    train(folder.put("p.tsv", "anchor\tpositive\na\tthe\nmodel\tscale\nruns\tgroup\n"),
          " --set model.head=embeddings");
    EXPECT_EQ(test::metrics(folder / "tuned").size(), 1u);
  }
}

}  // namespace
}  // namespace octet::encoders_new_head_test
