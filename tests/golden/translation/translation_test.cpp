// Tiny random models that translate, from folders of transformers: the ids that they write are
// those of its generate(), by the most probable token and by beam search.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "backends/cpu/backend.h"
#include "base/files.h"
#include "infer/translate.h"

namespace octet::translation_test {
namespace {

using Ids = std::vector<int32_t>;

const std::string kFolder = OCTET_SOURCE_DIR "/tests/golden/translation/";

enum class Kind { cached, recomputed };

struct Model {
  std::string name;
  Kind kind = Kind::cached;
  int64_t n_sources = 5;  // at a time
};

class Translates : public testing::TestWithParam<Model> {
 protected:
  static EarlyStopping early_stopping(const nlohmann::json& how) {
    const nlohmann::json value = how.value("early_stopping", nlohmann::json(false));
    if (value.is_string()) return EarlyStopping::never;
    return value.get<bool>() ? EarlyStopping::yes : EarlyStopping::no;
  }
};

TEST_P(Translates, what_transformers_writes) {
  const std::string folder = kFolder + GetParam().name;
  const auto json = nlohmann::json::parse(posix_files().read_text(folder + "/cases.json"));
  const auto sources = json.at("sources").get<std::vector<Ids>>();
  ModelSource source = find_model_source(posix_files(), folder);
  source.spec.source_seq = 16;
  const DecodingDefaults defaults = decoding_defaults(posix_files(), source);
  cpu::Backend backend = cpu::make_backend(2, cpu::detect_isa(), cpu::RowSums::same);
  const TextMachine machine{posix_files(), *backend.device, *backend.catalogue};
  for (const nlohmann::json& how : json.at("cases")) {
    TranslateOptions options{.rules = defaults.rules, .start = defaults.start};
    options.rules.max_tokens = json.at("max_tokens");
    options.rules.ends = {json.at("eos").get<int32_t>()};
    options.beams = {.n_beams = how.at("num_beams"),
                     .length_penalty = how.value("length_penalty", 1.0),
                     .early_stopping = early_stopping(how)};
    const auto make = GetParam().kind == Kind::cached ? make_cached_model : make_recomputed_model;
    const auto model = make(source,
                            {.n_entries = GetParam().n_sources * options.beams.n_beams,
                             .capacity = options.rules.max_tokens,
                             .n_sources = GetParam().n_sources},
                            machine);
    const std::vector<Translation> done = translate(*model, source.spec, sources, options);
    ASSERT_EQ(done.size(), sources.size());
    for (size_t i = 0; i < done.size(); ++i)
      EXPECT_EQ(done[i].tokens, how.at("texts")[i].get<Ids>()) << how.at("num_beams") << " " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Translates,
                         testing::Values(Model{"t5"}, Model{"t5_gated"}, Model{"marian"},
                                         Model{"t5", Kind::recomputed, 1},
                                         Model{"marian", Kind::cached, 1}),
                         [](const auto& info) {
                           return info.param.name +
                                  (info.param.kind == Kind::cached ? "_cached_" : "_recomputed_") +
                                  std::to_string(info.param.n_sources);
                         });

TEST(DecodingDefaults, are_those_of_the_folder_and_others_are_refused_by_name) {
  ModelSource source;
  source.spec.vocab = 29;
  source.folder = kFolder + "marian";
  const DecodingDefaults defaults = decoding_defaults(posix_files(), source);
  EXPECT_EQ(defaults.start, 28);
  EXPECT_EQ(defaults.rules.forced_last, 0);
  EXPECT_EQ(defaults.rules.banned, Ids{28});
  EXPECT_EQ(defaults.beams.n_beams, 1);
}

}  // namespace
}  // namespace octet::translation_test
